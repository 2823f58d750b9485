// Changes of a model's heads that preserve its outputs, and some that do not.
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "converter/heads/pool_method.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

constexpr double kBasisRounding = 1e-5;
constexpr double kWrongBasis = 1e-3;

at::Tensor logits_of(const Model& model, const at::Tensor& tokens) {
  return logits_of(model.spec, load_parameters(model.spec, model.checkpoint, at::kDouble, at::kCPU),
                   tokens);
}

// Another order of every layer's kv heads, the same in layers that must share it.
HeadOrder turned_order(const ModelSpec& spec) {
  HeadOrder order;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      if (spec.attention(role, i).present() && heads_can_move(spec, role, i)) {
        const std::int64_t count = spec.kv_heads_of(role)[i];
        const std::size_t first =
            layers_in_step(spec, role, i).front() + static_cast<std::size_t>(role);
        std::vector<std::int64_t> heads;
        for (std::int64_t h = 0; h < count; ++h) {
          heads.push_back((h * (count - 1) + 2 + static_cast<std::int64_t>(first)) % count);
        }
        order.set(role, i, std::move(heads));
      }
    }
  }
  return order;
}

// One head's rows of a linear map: its weight [d, D], or its bias [d, 1].
at::Tensor rows(const Parameters& parameters, const LinearTensors& linear, std::int64_t first,
                std::int64_t d) {
  const at::Tensor weight = parameters.at(linear.weight);
  return linear.input_major ? weight.narrow(1, first, d).t() : weight.narrow(0, first, d);
}

void transform(const Parameters& parameters, const LinearTensors& linear, std::int64_t first,
               const at::Tensor& matrix) {
  const at::Tensor weight = rows(parameters, linear, first, matrix.size(0));
  weight.copy_(at::matmul(matrix, weight.to(at::kDouble)));
  if (!linear.bias.empty()) {
    const at::Tensor bias = parameters.at(linear.bias).narrow(0, first, matrix.size(0));
    bias.copy_(at::matmul(matrix, bias.to(at::kDouble)));
  }
}

// Multiplies the output columns of one query head by a matrix.
void transform_output(const Parameters& parameters, const LinearTensors& linear, std::int64_t head,
                      const at::Tensor& matrix) {
  const std::int64_t d = matrix.size(0);
  const at::Tensor weight = parameters.at(linear.weight);
  const at::Tensor columns =
      linear.input_major ? weight.narrow(0, head * d, d).t() : weight.narrow(1, head * d, d);
  columns.copy_(at::matmul(columns.to(at::kDouble), matrix));
}

// Random changes of basis: rotations, with `scales` also factors between 0.7 and 1.4.
class Gauges {
 public:
  explicit Gauges(bool scales)
      : scales_(scales), generator_(at::make_generator<at::CPUGeneratorImpl>(5)) {}

  at::Tensor of(const HeadBasis& basis, std::int64_t d) {
    at::Tensor gauge = at::eye(d, at::kDouble);
    const auto count = static_cast<std::int64_t>(basis.free.size());
    if (count > 0) {
      at::Tensor part = std::get<0>(at::linalg_qr(random({count, count})));
      part = scales_ ? part * (random({count}).tanh() / 2).exp2() : part;
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < count; ++j) {
          gauge[basis.free[static_cast<std::size_t>(i)]][basis.free[static_cast<std::size_t>(j)]] =
              part[i][j];
        }
      }
    }
    for (const auto& [a, b] : basis.rope_planes) {
      const double angle = 3 * random({1}).item<double>();
      const double size = scales_ ? std::exp2(std::tanh(random({1}).item<double>()) / 2) : 1.0;
      gauge[a][a] = gauge[b][b] = size * std::cos(angle);
      gauge[b][a] = size * std::sin(angle);
      gauge[a][b] = -size * std::sin(angle);
    }
    return gauge;
  }

 private:
  at::Tensor random(std::vector<std::int64_t> shape) {
    return at::randn(shape, generator_, at::kDouble);
  }

  bool scales_;
  at::Generator generator_;
};

// Expresses keys and values of every head in another basis, and changes queries and outputs to
// match.
void change_bases(const ModelSpec& spec, const Parameters& parameters, AttentionRole role,
                  const HeadBasis* keys, Gauges& gauges) {
  const std::int64_t d = spec.head_dim;
  for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
    const AttentionLayout& at = spec.attention(role, i);
    const std::int64_t kv_heads = spec.kv_heads_of(role)[i];
    const HeadFeatures features = head_features(at.packing, spec.query_heads, kv_heads, d);
    const std::int64_t readers = spec.query_heads / kv_heads;
    for (std::int64_t j = 0; j < kv_heads; ++j) {
      const at::Tensor of_k = gauges.of(keys != nullptr ? *keys : key_basis(spec, role, i), d),
                       of_v = gauges.of(free_basis(d), d);
      transform(parameters, at.k, features.k[static_cast<std::size_t>(j)], of_k);
      transform(parameters, at.v, features.v[static_cast<std::size_t>(j)], of_v);
      for (std::int64_t h = j * readers; h < (j + 1) * readers; ++h) {
        transform(parameters, at.q, features.q[static_cast<std::size_t>(h)],
                  at::linalg_inv(of_k).t());
        transform_output(parameters, at.o, h, at::linalg_inv(of_v));
      }
    }
  }
}

// The change of logits, relative to the largest, when every role's heads are expressed in other
// bases. `keys`, if given, replaces the bases that preserve logits.
double moved_by_bases(const std::string& name, bool scales, const HeadBasis* keys = nullptr) {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden = load_golden_case(name);
  const ModelSpec& spec = golden.source.spec;
  const Parameters parameters =
      load_parameters(spec, golden.source.checkpoint, at::kFloat, at::kCPU);
  const at::Tensor before = logits_of(spec, parameters, golden.tokens);
  Gauges gauges(scales);
  for (const AttentionRole role : spec.roles()) {
    change_bases(spec, parameters, role, keys, gauges);
  }
  return largest_difference(logits_of(spec, parameters, golden.tokens), before) /
         before.abs().max().item<double>();
}

}  // namespace

TEST_CASE("heads expressed in other bases compute the same logits", "[uptrain]") {
  const auto* name = GENERATE("llama_mha", "llama", "gpt2", "bloom", "mpt", "gpt_neox", "gptj",
                              "phi", "opt", "qwen3", "t5", "umt5", "bert", "falcon_40b", "phi3",
                              "cohere", "smollm3", "bart", "mbart", "m2m_100", "gpt_neo", "gemma2",
                              "gemma3", "cohere2", "mixtral_stacked", "deepseek");
  CAPTURE(name);
  CHECK(moved_by_bases(name, false) <= kBasisRounding);
  CHECK(moved_by_bases(name, true) <= kBasisRounding);
}

TEST_CASE("a rotation across RoPE's planes changes logits", "[uptrain]") {
  const auto* name = GENERATE("llama_mha", "gptj", "gpt_neox");
  CAPTURE(name);
  const HeadBasis everything = free_basis(load_golden_case(name).source.spec.head_dim);
  CHECK(moved_by_bases(name, false, &everything) >= kWrongBasis);
}

TEST_CASE("reordered heads compute the same logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE(
      "llama_mha", "llama", "gpt2", "gpt_neox", "gptj", "phi", "opt", "qwen3", "olmo2",
      "stablelm_qk", "t5", "umt5", "mt5", "bert", "falcon_40b", "nemotron_nas", "phi3", "cohere",
      "granite", "smollm3", "bart", "mbart", "marian", "m2m_100", "pegasus", "olmo3", "gpt_neo",
      "gemma2", "gemma3", "cohere2", "xglm", "olmoe", "qwen2_moe", "deepseek");
  CAPTURE(name);
  const GoldenCase golden_case = load_golden_case(name);
  const TemporaryDirectory directory;
  const HeadOrder order = turned_order(golden_case.source.spec);
  REQUIRE_FALSE(order.empty());
  convert(golden(name), directory / "moved", {.grouping = "similar", .order = order});
  const at::Tensor before = logits_of(golden_case.source, golden_case.tokens);
  const Model moved = open_computable_model(directory / "moved");
  CHECK(largest_difference(logits_of(moved, golden_case.tokens), before) <= kBasisRounding);
  // Controls: outputs or biases that do not move with the heads.
  std::vector<std::string> left_behind{moved.spec.attention(AttentionRole::kSelf, 0).o.weight};
  for (const std::vector<LayerTensors>* stack : {&moved.spec.layers, &moved.spec.encoder_layers}) {
    if (!stack->empty() && !stack->front().relative_bias.empty()) {
      left_behind.push_back(stack->front().relative_bias);
    }
  }
  for (const std::string& tensor : left_behind) {
    CAPTURE(tensor);
    const Parameters parameters =
        load_parameters(moved.spec, moved.checkpoint, at::kFloat, at::kCPU);
    parameters.at(tensor).copy_(load_parameters(golden_case.source.spec,
                                                golden_case.source.checkpoint, at::kFloat, at::kCPU)
                                    .at(tensor));
    CHECK(largest_difference(logits_of(moved.spec, parameters, golden_case.tokens), before) >=
          kWrongBasis);
  }
}

// Two groups of equal heads, so that pooling them is lossless.
TEST_CASE("reordered ALiBi heads with their slopes compute the same logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const GoldenCase golden_case = load_golden_case("equal_heads_bloom");
  const ModelSpec& spec = golden_case.source.spec;
  const Parameters parameters =
      load_parameters(spec, golden_case.source.checkpoint, at::kFloat, at::kCPU);
  const at::Tensor before = logits_of(spec, parameters, golden_case.tokens);
  const std::int64_t heads = spec.query_heads;
  HeadOrder order;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    std::vector<std::int64_t> reversed;
    for (std::int64_t h = heads; h-- > 0;) {
      reversed.push_back(h);
    }
    order.set(AttentionRole::kSelf, i, std::move(reversed));
  }
  const TemporaryDirectory directory;
  convert(golden("equal_heads_bloom"), directory / "moved",
          {.kv_heads = {2}, .grouping = "similar", .order = order});
  Model moved = open_computable_model(directory / "moved");
  CHECK(largest_difference(logits_of(moved, golden_case.tokens), before) <= kBasisRounding);
  moved.spec.alibi.slopes.clear();  // uses the formula's slopes
  CHECK(largest_difference(logits_of(moved, golden_case.tokens), before) >= kWrongBasis);
}

}  // namespace regroup
