// Sliding windows in some of the layers, and what comes with them: wrong settings, decoding, walks.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/model/serving_cost.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "uptrain/model/decode.h"
#include "uptrain/model/kv_cache.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/calibrate.h"

namespace regroup {
namespace {

constexpr double kOtherThanGolden = 1e-2;

template <typename Change>
bool differs_with(const char* name, Change change) {
  GoldenCase golden = load_golden_case(name);
  const Parameters parameters =
      load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU);
  change(golden.source.spec);
  return largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                            golden.logits) >= kOtherThanGolden;
}

// Exchanges the layers with and without the window.
void exchange_windows(ModelSpec& spec) {
  for (LayerTensors& layer : spec.layers) {
    layer.without_window = !layer.without_window;
  }
}

}  // namespace

TEST_CASE("a model with windows and one wrong setting has other logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  for (const char* name : {"olmo3", "gpt_neo", "gemma2", "gemma3", "cohere2", "qwen2_windows"}) {
    CAPTURE(name);
    CHECK(differs_with(name, exchange_windows));
    CHECK(differs_with(name, [](ModelSpec& spec) { --*spec.sliding_window; }));
    CHECK(differs_with(name, [](ModelSpec& spec) { ++*spec.sliding_window; }));
  }
  CHECK(differs_with("olmo3", [](ModelSpec& spec) { spec.window_rope.reset(); }));
  CHECK(differs_with("olmo3", [](ModelSpec& spec) { spec.rope = *spec.window_rope; }));
  CHECK(differs_with("gemma3", [](ModelSpec& spec) { std::swap(spec.rope, *spec.window_rope); }));
  CHECK(differs_with("gemma3", [](ModelSpec& spec) {
    spec.qk_norm = QkNorm::kNone;
    for (LayerTensors& layer : spec.layers) {
      layer.attention.q_norms.clear();
      layer.attention.k_norms.clear();
    }
  }));
  CHECK(differs_with("gemma2", [](ModelSpec& spec) { spec.attention_softcap.reset(); }));
  CHECK(differs_with("gemma2", [](ModelSpec& spec) { spec.logit_softcap.reset(); }));
  CHECK(differs_with("gemma2", [](ModelSpec& spec) { spec.attention_scale.reset(); }));
  CHECK(differs_with("gemma2",
                     [](ModelSpec& spec) { spec.norm_placement = NormPlacement::kBefore; }));
  CHECK(differs_with("gpt_neo", [](ModelSpec& spec) { spec.attention_scale.reset(); }));
  CHECK(differs_with("cohere2", [](ModelSpec& spec) { spec.layers[3].without_rope = false; }));
  CHECK(differs_with("xglm", [](ModelSpec& spec) { spec.position_offset = 0; }));
  CHECK(differs_with("xglm", [](ModelSpec& spec) { ++spec.sinusoids.steps; }));
}

TEST_CASE("layers with a window cache its tokens only, others all", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("olmo3", "gpt_neo", "gemma2", "gemma3", "cohere2", "qwen2_windows");
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{3}, std::int64_t{6}, std::int64_t{13});
  CAPTURE(name, chunk);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = load_transformer(golden.source, at::kDouble, at::kCPU);
  KvCache cache = model.make_cache({.batch = 2, .capacity = 13, .window = {}, .sinks = 0});
  CHECK(cache.bytes() == 2 * kv_cache_cost(golden.source.spec, DType::kF64)->at(13));
  CHECK_FALSE(cache.drops());
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < 13; first += chunk) {
    const at::Tensor tokens = golden.tokens.narrow(1, first, std::min(chunk, 13 - first));
    parts.push_back(model.logits(model.hidden_states(tokens, cache)));
  }
  const at::Tensor whole = model.logits(model.hidden_states(golden.tokens));
  CHECK(largest_difference(at::cat(parts, 1), whole) <= 1e-10);
  CHECK(cache.longest_step() == 0);
}

TEST_CASE("a narrower window over the cache applies to all layers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("olmo3", "gpt_neo", "gemma2");
  const auto chunk = GENERATE(std::int64_t{1}, std::int64_t{4});
  CAPTURE(name, chunk);
  GoldenCase golden = load_golden_case(name);
  const Transformer model = load_transformer(golden.source, at::kDouble, at::kCPU);
  KvCache cache = model.make_cache({.batch = 2, .capacity = 13, .window = 3, .sinks = 0});
  CHECK(cache.drops());
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < 13; first += chunk) {
    const at::Tensor tokens = golden.tokens.narrow(1, first, std::min(chunk, 13 - first));
    parts.push_back(model.logits(model.hidden_states(tokens, cache)));
  }
  golden.source.spec.sliding_window = 3;
  if (golden.source.spec.window_rope) {
    return;  // the layers would also change their RoPE
  }
  for (LayerTensors& layer : golden.source.spec.layers) {
    layer.without_window = false;
  }
  const Transformer narrow = load_transformer(golden.source, at::kDouble, at::kCPU);
  CHECK(largest_difference(at::cat(parts, 1), narrow.logits(narrow.hidden_states(golden.tokens))) <=
        1e-10);
}

TEST_CASE("a walk over layers with and without a window ends at the model's logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("olmo3", "gpt_neo", "gemma2", "gemma3", "cohere2");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  LayerWalk walk(golden.source, {golden.tokens});
  while (walk.next()) {
    walk.run({}, kNeverStopped);
  }
  const OutputHead head(golden.source, at::kCPU);
  CHECK(largest_difference(head.logits(walk.hidden().front()), golden.logits) <= 1e-4);
}

}  // namespace regroup
