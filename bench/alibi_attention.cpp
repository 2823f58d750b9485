// bench_alibi_attention: compares attention with ALiBi to plain causal attention on the same random
// heads, forward and backward: time, and memory over context length.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>
#include <malloc.h>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <CLI/CLI.hpp>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "formats/spec/alibi.h"
#include "uptrain/model/device.h"
#include "uptrain/ops/attention.h"

namespace {

using namespace regroup;

struct Options {
  std::vector<std::int64_t> lengths = {512, 1024, 2048, 4096, 8192};
  std::int64_t batch = 1, heads = 8, kv_heads = 8, head_dim = 64;
  std::string device = "cpu", dtype = "bf16";
  int rounds = 5;
  int threads = 0;
};

// One attention variant and its measurements.
struct Way {
  std::string name;
  std::function<at::Tensor(const Heads&)> attend;
  std::vector<double> seconds = {};
  double bytes = 0.0;  // in the last round

  double median() const {
    std::vector<double> sorted = seconds;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Laid out as projections produce them: the token stride is larger than the head stride.
Heads random_heads(const Options& options, std::int64_t length, const at::TensorOptions& how) {
  const auto heads = [&](std::int64_t count) {
    return at::randn({options.batch, length, count, options.head_dim}, how)
        .transpose(1, 2)
        .requires_grad_();
  };
  return {heads(options.heads), heads(options.kv_heads), heads(options.kv_heads)};
}

// Resets the peak memory counter and empties the cache.
void reset_peak(c10::Device device) {
  if (device.is_cpu()) {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
  }
}

void measure(Way& way, const Heads& heads, c10::Device device) {
  for (const at::Tensor& tensor : {heads.q, heads.k, heads.v}) {
    tensor.mutable_grad() = at::Tensor();
  }
  wait_for(device);
  reset_peak(device);
  const double before = peak_memory(device);
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor output = way.attend(heads);
  output.backward(at::ones_like(output));
  wait_for(device);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  way.seconds.push_back(seconds.count());
  way.bytes = peak_memory(device) - before;
}

// The bias and the causal mask as one mask of T x T numbers per head: what fused kernels take that
// know no slopes. Made before the time is taken, as a pass makes it once for all layers.
at::Tensor causal_mask(const Alibi& alibi, std::int64_t length, const at::TensorOptions& how) {
  const at::Tensor positions = at::arange(length, how.dtype(at::kFloat));
  const at::Tensor later =
      at::full({length, length}, -std::numeric_limits<float>::infinity(), how.dtype(at::kFloat))
          .triu(1);
  return (alibi.bias(positions - positions.unsqueeze(1)) + later).to(how).contiguous();
}

constexpr double kMostMaskBytes = 4.0 * (1ULL << 30);

std::vector<Way> ways_of(const Options& options, std::int64_t length,
                         const at::TensorOptions& how) {
  const Alibi alibi(alibi_slopes(options.heads), options.head_dim, how);
  const auto with = [alibi](AlibiForm form) {
    return [alibi, form](const Heads& heads) { return alibi.attend(heads, form); };
  };
  std::vector<Way> ways = {{"plain", [](const Heads& heads) { return attend(heads, {}); }},
                           {"extra dimensions", with(AlibiForm::kExtraDimensions)}};
  if (how.device().is_cpu()) {
    ways.push_back({"bias", with(AlibiForm::kBias)});
  }
  const auto elements = static_cast<double>(options.heads * length * length);
  if (elements * static_cast<double>(how.dtype().itemsize()) <= kMostMaskBytes) {
    const at::Tensor mask = causal_mask(alibi, length, how);
    ways.push_back({"mask", [mask, scale = alibi.scale()](const Heads& heads) {
                      return attend(heads, mask, scale, /*causal=*/false);
                    }});
  }
  return ways;
}

void compare(const Options& options, std::int64_t length, const at::TensorOptions& how) {
  const Heads heads = random_heads(options, length, how);
  std::vector<Way> ways = ways_of(options, length, how);
  for (int round = -1; round < options.rounds; ++round) {
    for (Way& way : ways) {
      measure(way, heads, how.device());
      if (round < 0) {  // the first use of a kernel takes longer
        way.seconds.clear();
      }
    }
  }
  for (const Way& way : ways) {
    fmt::print("{:>7}  {:<17} {:>9.2f} ms  {:>5.2f}  {:>9.1f} MiB\n", length, way.name,
               1e3 * way.median(), way.median() / ways.front().median(), way.bytes / (1 << 20));
  }
}

void run(const Options& options) {
  set_compute_threads(options.threads);
  const c10::Device device = parse_device(options.device);
  const auto how = at::TensorOptions(scalar_type_of(parse_precision(options.dtype))).device(device);
  fmt::print(
      "{} x {} heads of {}, {} kv heads, {}, forward and backward, medians of {}\n"
      "tokens   bias in                 time  times       memory\n",
      options.batch, options.heads, options.head_dim, options.kv_heads, options.dtype,
      options.rounds);
  for (const std::int64_t length : options.lengths) {
    compare(options, length, how);
  }
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  CLI::App app(
      "The cost of ALiBi in attention: time relative to plain causal attention, and memory");
  app.option_defaults()->always_capture_default();
  app.add_option("--lengths", options.lengths, "tokens per sequence")->delimiter(',');
  app.add_option("--batch", options.batch, "sequences");
  app.add_option("--heads", options.heads, "query heads");
  app.add_option("--kv-heads", options.kv_heads, "kv heads");
  app.add_option("--head-dim", options.head_dim, "head dimension");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--dtype", options.dtype, "bf16 or fp32");
  app.add_option("--rounds", options.rounds, "measurements of each");
  app.add_option("--threads", options.threads, "CPU threads; 0: one per core");
  CLI11_PARSE(app, count, arguments);
  run(options);
}
