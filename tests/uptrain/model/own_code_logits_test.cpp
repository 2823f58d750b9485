// Models whose code is on the hub, and CodeGen: wrong settings, other architectures, limits.
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/model/kv_cache.h"

namespace regroup {
namespace {

constexpr double kSameLogits = 1e-4;
constexpr double kOtherLogits = 1e-2;

Parameters weights_of(const Model& model) {
  return load_parameters(model.spec, model.checkpoint, at::kFloat, at::kCPU);
}

}  // namespace

TEST_CASE("a Baichuan, InternLM, MiniCPM or Qwen with one wrong setting has other logits",
          "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto differs = [](const char* name, auto change) {
    GoldenCase golden = load_golden_case(name);
    const Parameters parameters = weights_of(golden.source);
    change(golden.source.spec);
    return largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                              golden.logits) >= kOtherLogits;
  };
  CHECK(differs("baichuan2_7b", [](ModelSpec& spec) { spec.lm_head_normalised = false; }));
  CHECK(differs("baichuan_7b", [](ModelSpec& spec) { spec.lm_head_normalised = true; }));
  CHECK(differs("baichuan_7b", [](ModelSpec& spec) { spec.rope.interleaved = true; }));
  CHECK(differs("baichuan2_13b", [](ModelSpec& spec) { spec.positions = PositionKind::kNone; }));
  CHECK(differs("internlm", [](ModelSpec& spec) { spec.rope.scaling = {}; }));
  CHECK(differs("internlm2", [](ModelSpec& spec) {
    spec.layers[0].attention.packing = Packing::kQueryKeyValue;
  }));
  CHECK(differs("minicpm", [](ModelSpec& spec) { spec.embedding_scale = 1.0; }));
  CHECK(differs("minicpm", [](ModelSpec& spec) { spec.residual_scale = 1.4; }));
  CHECK(differs("minicpm", [](ModelSpec& spec) { spec.output_scale = 1.0; }));
  CHECK(
      differs("qwen", [](ModelSpec& spec) { std::swap(spec.layers[1].gate, spec.layers[1].up); }));
}

TEST_CASE("a CodeGen with one wrong setting has other logits than transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("codegen");
  const Parameters parameters = weights_of(golden.source);
  ModelSpec& spec = golden.source.spec;
  SECTION("pairs half a head apart") { spec.rope.interleaved = false; }
  SECTION("queries, keys and values in sequence") {
    spec.layers[1].attention.packing = Packing::kQueryKeyValue;
  }
  SECTION("queries, keys and values head by head") {
    spec.layers[1].attention.packing = Packing::kPerGroup;
  }
  SECTION("attention and MLP in sequence") { spec.parallel_residual = false; }
  CHECK(largest_difference(logits_of(spec, parameters, golden.tokens), golden.logits) >=
        kOtherLogits);
}

TEST_CASE("models with code of their own keep their logits as Llama, Qwen2, Granite or GLM",
          "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [name, architecture] =
      GENERATE(table<const char*, const char*>({{"baichuan_7b", "LlamaForCausalLM"},
                                                {"baichuan2_7b", "LlamaForCausalLM"},
                                                {"internlm", "LlamaForCausalLM"},
                                                {"qwen", "Qwen2ForCausalLM"},
                                                {"chatglm2", "GlmForCausalLM"},
                                                {"minicpm", "GraniteForCausalLM"}}));
  CAPTURE(name);
  const TemporaryDirectory directory;
  // The own code of these two takes groups, so "auto" would leave them as they are.
  const char* target = std::string_view(name) == "minicpm"    ? "granite"
                       : std::string_view(name) == "chatglm2" ? "glm"
                                                              : "auto";
  convert(golden(name), directory / "written", {.kv_heads = {3}, .target = target});
  const Model source = open_computable_model(directory / "written");
  CHECK(source.spec.architecture == architecture);
  const Parameters parameters = weights_of(source);
  const auto expected = golden(name) / "expected_g3.safetensors";
  const at::Tensor tokens = read_tensor(expected, "tokens");
  const at::Tensor logits = read_tensor(expected, "logits");
  CHECK(largest_difference(logits_of(source.spec, parameters, tokens), logits) <= kSameLogits);
  const at::Tensor ungrouped = read_tensor(golden(name) / "expected.safetensors", "logits");
  CHECK(largest_difference(logits, ungrouped) >= kOtherLogits);
}

TEST_CASE("a Qwen takes no more tokens than it is known to compute", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("qwen");
  const Parameters parameters = weights_of(golden.source);
  golden.source.spec.max_positions = 12;
  CHECK_THAT(refusal_of([&] { logits_of(golden.source.spec, parameters, golden.tokens); }),
             is_wrong_usage("13 tokens", "up to 12"));
  const Transformer model(golden.source.spec, parameters);
  KvCacheSettings settings;
  settings.batch = golden.tokens.size(0);
  settings.capacity = 13;
  KvCache cache = model.make_cache(settings);
  model.hidden_states(golden.tokens.narrow(1, 0, 12), cache);
  CHECK_THAT(refusal_of([&] { model.hidden_states(golden.tokens.narrow(1, 12, 1), cache); }),
             is_wrong_usage("13 tokens", "up to 12"));
}

}  // namespace regroup
