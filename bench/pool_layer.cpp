// bench_pool_layer: time and memory for pooling one random attention layer, without reading and
// writing tensors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "converter/pooling/pool_attention.h"

namespace {

using namespace regroup;

struct Options {
  std::int64_t hidden = 4096, heads = 32, kv_heads = 16, head_dim = 128;
  std::string method = "lowrank";
  bool rope = true;
  bool diagonal = false;
  bool similar = false;
  int threads = 0;
};

at::Tensor view_of(std::vector<double>& values, std::vector<std::int64_t> shape) {
  return at::from_blob(values.data(), shape, at::kDouble);
}

DenseLinear random_linear(std::int64_t outputs, std::int64_t inputs, at::Generator& generator) {
  DenseLinear linear{outputs, inputs, {}, {}};
  linear.weight.resize(static_cast<std::size_t>(outputs * inputs));
  view_of(linear.weight, {outputs, inputs})
      .normal_(0.0, 1.0 / std::sqrt(static_cast<double>(inputs)), generator);
  return linear;
}

// Correlated inputs: a random symmetric positive definite matrix.
InputMoments random_moments(const Options& options, at::Generator& generator) {
  const auto width = static_cast<std::size_t>(options.hidden);
  InputMoments moments{std::vector<double>(width, 0.1), std::vector<double>(width, 1.0), {}};
  if (!options.diagonal) {
    moments.variance.clear();
    moments.covariance.resize(width * width);
    at::Tensor covariance = view_of(moments.covariance, {options.hidden, options.hidden});
    const at::Tensor root = at::randn({options.hidden, options.hidden / 8}, generator, at::kDouble);
    at::mm_out(covariance, root, root.t());
    covariance.diagonal().add_(1.0);
  }
  return moments;
}

// The layer's position settings.
ModelSpec layer_spec(const Options& options) {
  ModelSpec spec;
  spec.query_heads = options.heads;
  spec.head_dim = options.head_dim;
  spec.positions = options.rope ? PositionKind::kRope : PositionKind::kNone;
  spec.rope.rotary_dim = options.head_dim;
  spec.max_positions = 4096;
  return spec;
}

struct Usage {
  double cpu_seconds = 0.0, peak_gib = 0.0;
};

Usage usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(used.ru_utime) + seconds(used.ru_stime),
          static_cast<double>(used.ru_maxrss) / 1024 / 1024};
}

template <typename Work>
void timed(const char* name, const Work& work) {
  const double cpu = usage().cpu_seconds;
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("{}: {:.2f} s, {:.2f} s of CPU, peak {:.2f} GiB\n", name, elapsed.count(),
             usage().cpu_seconds - cpu, usage().peak_gib);
}

void run(const Options& options) {
  if (options.threads > 0) {
    at::set_num_threads(options.threads);
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  AttentionHeads heads;
  heads.query_heads = heads.kv_heads = options.heads;
  heads.head_dim = options.head_dim;
  const std::int64_t features = options.heads * options.head_dim;
  for (DenseLinear* linear : {&heads.q, &heads.k, &heads.v}) {
    *linear = random_linear(features, options.hidden, generator);
  }
  heads.o = random_linear(options.hidden, features, generator);
  const InputMoments moments = random_moments(options, generator);
  const ModelSpec spec = layer_spec(options);
  const PoolingTask task{parse_pool_method(options.method),
                         options.kv_heads,
                         key_basis(spec, AttentionRole::kSelf, 0),
                         moments,
                         moments,
                         options.rope ? usual_distances(spec) : KeyDistances{}};
  fmt::print("{} {} -> {} heads, {}, {}, {:.2f} GiB before\n", options.method, options.heads,
             options.kv_heads, options.rope ? "RoPE" : "no RoPE",
             options.diagonal ? "diagonal metric" : "full covariance", usage().peak_gib);
  if (options.similar) {
    timed("grouping", [&] {
      const SimilarHeads found = find_similar_heads(heads, task);
      fmt::print("energy lost: similar {:.6f}, contiguous {:.6f}\n", found.loss,
                 found.contiguous_loss);
    });
  }
  timed("pooling", [&] {
    const GroupReport kept = pool_attention(heads, task).groups.at(0);
    fmt::print("energy kept in the first group: keys {:.6f}, values {:.6f}\n", kept.key_energy,
               kept.value_energy);
  });
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  CLI::App program("Times the pooling of one layer");
  program.option_defaults()->always_capture_default();
  program.add_option("--hidden", options.hidden, "inputs D");
  program.add_option("--heads", options.heads, "query and kv heads H");
  program.add_option("--kv-heads", options.kv_heads, "remaining kv heads");
  program.add_option("--head-dim", options.head_dim, "features per head");
  program.add_option("--method", options.method, "method of regroup convert --pool");
  program.add_flag("--rope,!--no-rope", options.rope, "keys use RoPE");
  program.add_flag("--diagonal", options.diagonal, "uncorrelated inputs");
  program.add_flag("--similar", options.similar, "also search the groups with the least loss");
  program.add_option("--threads", options.threads, "CPU threads (default: one per core)");
  CLI11_PARSE(program, count, arguments);
  run(options);
  return 0;
}
