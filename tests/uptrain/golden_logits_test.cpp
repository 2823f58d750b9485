// Logits against transformers', for every fixture, with controls that must fail.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/families/family.h"
#include "tests/uptrain/golden_case.h"

namespace regroup {
namespace {

constexpr double kTolerance = 1e-4;
constexpr double kClearlyWrong = 1e-2;

at::Tensor logits_of(const ModelSpec& spec, const Parameters& parameters,
                     const at::Tensor& tokens) {
  const Transformer model(spec, parameters);
  return model.logits(model.hidden_states(tokens));
}

Parameters parameters_of(const GoldenCase& golden) {
  return load_parameters(golden.source.spec, golden.source.directory.checkpoint, at::kFloat,
                         at::kCPU);
}

// Exchanges the values of the first and the last kv head of layer 0, in place.
void swap_value_heads(const ModelSpec& spec, const Parameters& parameters) {
  const AttentionLayout& attention = spec.layers.front().attention;
  const HeadFeatures features =
      head_features(attention.packing, spec.query_heads, spec.kv_heads.front(), spec.head_dim);
  const std::int64_t out_dimension = attention.v.input_major ? 1 : 0;
  const at::Tensor weight = parameters.at(attention.v.weight);
  const at::Tensor first = weight.narrow(out_dimension, features.v.front(), spec.head_dim);
  const at::Tensor last = weight.narrow(out_dimension, features.v.back(), spec.head_dim);
  const at::Tensor kept = first.clone();
  first.copy_(last);
  last.copy_(kept);
}

}  // namespace

TEST_CASE("logits equal those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "llama_mha", "llama_sharded", "llama_bf16", "llama_fp16",
                              "qwen2", "mistral", "gpt2", "gpt2_base", "bloom", "bloom_12",
                              "bloom_base", "equal_heads", "equal_heads_gpt2", "equal_heads_bloom");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) <= kTolerance);
}

TEST_CASE("logits with two value heads swapped do not equal those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "llama_mha", "llama_sharded", "llama_bf16", "qwen2",
                              "mistral", "gpt2", "gpt2_base", "bloom", "bloom_12", "bloom_base");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  swap_value_heads(golden.source.spec, parameters);
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("logits without the model's positions do not equal those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "gpt2", "bloom", "bloom_12");
  CAPTURE(name);
  GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  golden.source.spec.positions = PositionKind::kNone;
  golden.source.spec.position_embedding.clear();
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("logits without the sliding window do not equal those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("mistral");
  const Parameters parameters = parameters_of(golden);
  golden.source.spec.sliding_window.reset();
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("both forms of ALiBi give the same logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("bloom", "bloom_12");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  Transformer model(golden.source.spec, parameters_of(golden));
  model.set_alibi_form(AlibiForm::kExtraDimensions);
  CHECK(largest_difference(model.logits(model.hidden_states(golden.tokens)), golden.logits) <=
        kTolerance);
}

}  // namespace regroup
