// Logits compared with transformers' for every fixture, and controls that must differ.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fmt/format.h>

#include "formats/families/family.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/grouped_cases.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

constexpr double kTolerance = 1e-4;
constexpr double kClearlyWrong = 1e-2;
Parameters parameters_of(const GoldenCase& golden) {
  return load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU);
}

// Swaps the values of the first and the last kv head of layer 0.
void swap_value_heads(const ModelSpec& spec, const Parameters& parameters,
                      AttentionRole role = AttentionRole::kSelf) {
  const AttentionLayout& attention = spec.attention(role, 0);
  const HeadFeatures features = head_features(attention.packing, spec.query_heads,
                                              spec.kv_heads_of(role).front(), spec.head_dim);
  const std::int64_t out_dimension = attention.v.input_major ? 1 : 0;
  const at::Tensor weight = parameters.at(attention.v.weight);
  const at::Tensor first = weight.narrow(out_dimension, features.v.front(), spec.head_dim);
  const at::Tensor last = weight.narrow(out_dimension, features.v.back(), spec.head_dim);
  const at::Tensor kept = first.clone();
  first.copy_(last);
  last.copy_(kept);
}

// Whether a fixture has clearly other logits after `change` of its spec.
template <typename Change>
bool differs(const char* name, const Change& change) {
  GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  change(golden.source.spec);
  return largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                            golden.logits) >= kClearlyWrong;
}

}  // namespace

TEST_CASE("logits equal those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE(
      "llama", "llama_mha", "llama_sharded", "llama_bf16", "llama_fp16", "qwen2", "mistral", "gpt2",
      "gpt2_base", "bloom", "bloom_12", "bloom_base", "equal_heads", "equal_heads_gpt2",
      "equal_heads_bloom", "qwen3", "gemma", "olmo", "olmo2", "phi", "phi_qk_layernorm", "stablelm",
      "stablelm_qk", "starcoder2", "nemotron", "gpt_neox", "gpt_neox_sequential", "gptj", "opt",
      "opt_350m", "mpt", "mpt_12", "falcon_rw", "falcon_40b", "falcon_11b", "gpt_bigcode_mha",
      "llama_rope_linear", "llama_rope_dynamic", "llama_rope_llama3", "llama_rope_yarn",
      "llama_rope_yarn_mscale", "falcon_7b", "gpt_bigcode", "t5", "t5_small", "t5_v1_1",
      "t5_v1_1_saved_again", "mt5", "umt5", "bert", "bert_base", "roberta", "xlm_roberta",
      "camembert", "electra", "distilbert", "llama_meta", "nemotron_nas", "phi3", "phi3_longrope",
      "phi3_longrope_short", "cohere", "granite", "smollm3", "biogpt", "persimmon", "bart",
      "bart_copies", "mbart", "marian", "marian_tables", "m2m_100", "pegasus", "llava",
      "qwen2_5_vl", "qwen3_vl", "baichuan_7b", "baichuan2_7b", "baichuan2_13b", "internlm",
      "internlm2", "qwen", "codegen", "olmo3", "gpt_neo", "gemma2", "gemma3", "cohere2",
      "qwen2_windows", "xglm", "minicpm", "olmoe", "qwen2_moe", "qwen3_moe", "mixtral",
      "mixtral_stacked", "granitemoe", "deepseek", "modernbert", "modernbert_biases", "nomic_bert",
      "mpnet", "jina_bert", "mosaic_bert", "electra_small", "chatglm2", "glm");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) <= kTolerance);
}

TEST_CASE("logits with two value heads swapped differ from those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE(
      "llama", "llama_mha", "llama_sharded", "llama_bf16", "qwen2", "mistral", "gpt2", "gpt2_base",
      "bloom", "bloom_12", "bloom_base", "qwen3", "gemma", "olmo", "olmo2", "phi",
      "phi_qk_layernorm", "stablelm", "stablelm_qk", "starcoder2", "nemotron", "gpt_neox",
      "gpt_neox_sequential", "gptj", "opt", "opt_350m", "mpt", "mpt_12", "falcon_rw", "falcon_40b",
      "falcon_11b", "gpt_bigcode_mha", "llama_rope_linear", "llama_rope_dynamic",
      "llama_rope_llama3", "llama_rope_yarn", "llama_rope_yarn_mscale", "bert", "roberta",
      "xlm_roberta", "camembert", "electra", "distilbert", "nemotron_nas", "phi3", "cohere",
      "granite", "smollm3", "biogpt", "persimmon", "llava", "qwen2_5_vl", "qwen3_vl", "baichuan_7b",
      "baichuan2_13b", "internlm", "internlm2", "qwen", "codegen", "olmo3", "gpt_neo", "gemma2",
      "gemma3", "cohere2", "qwen2_windows", "xglm", "minicpm", "olmoe", "qwen2_moe", "qwen3_moe",
      "mixtral", "mixtral_stacked", "granitemoe", "deepseek", "modernbert", "modernbert_biases",
      "nomic_bert", "mpnet", "jina_bert", "mosaic_bert", "electra_small", "chatglm2", "glm");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  swap_value_heads(golden.source.spec, parameters);
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("logits without positions differ from those of transformers", "[uptrain]") {
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

TEST_CASE("logits without the sliding window differ from those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden =
      load_golden_case(GENERATE("mistral", "phi3_longrope_short", "olmo3", "gpt_neo", "gemma2",
                                "gemma3", "qwen2_windows", "modernbert", "modernbert_biases"));
  const Parameters parameters = parameters_of(golden);
  golden.source.spec.sliding_window.reset();
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("a Granite, Command-R or SmolLM3 with one wrong setting has other logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  CHECK(differs("granite", [](ModelSpec& spec) { spec.residual_scale = 1.0; }));
  CHECK(differs("granite", [](ModelSpec& spec) { spec.embedding_scale = 1.0; }));
  CHECK(differs("granite", [](ModelSpec& spec) { spec.attention_scale.reset(); }));
  CHECK(differs("granite", [](ModelSpec& spec) { spec.output_scale = 1.0; }));
  CHECK(differs("cohere", [](ModelSpec& spec) { spec.rope.interleaved = false; }));
  CHECK(differs("cohere", [](ModelSpec& spec) { spec.output_scale = 1.0; }));
  CHECK(differs("smollm3", [](ModelSpec& spec) { spec.layers[3].without_rope = false; }));
  CHECK(differs("smollm3", [](ModelSpec& spec) { spec.layers[0].without_rope = true; }));
}

TEST_CASE("a mixture of experts with one wrong setting has other logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  CHECK(differs("olmoe", [](ModelSpec& spec) { spec.clip_qkv.reset(); }));
  for (const char* name :
       {"olmoe", "qwen2_moe", "qwen3_moe", "mixtral", "granitemoe", "deepseek"}) {
    CAPTURE(name);
    CHECK(differs(name, [](ModelSpec& spec) { spec.routing.per_token = 1; }));
    CHECK(
        differs(name, [](ModelSpec& spec) { spec.routing.normalised = !spec.routing.normalised; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.routing.scale = 1.1; }));
  }
  for (const char* name : {"olmoe", "qwen2_moe", "mixtral", "deepseek"}) {
    CAPTURE(name);
    CHECK(differs(name, [](ModelSpec& spec) {
      ExpertTensors& experts = spec.layers.back().experts;
      std::swap(experts.down.front(), experts.down.back());
    }));
    CHECK(differs(name, [](ModelSpec& spec) {
      ExpertTensors& experts = spec.layers.back().experts;
      std::swap(experts.gate, experts.up);
    }));
  }
  CHECK(differs("qwen2_moe", [](ModelSpec& spec) { spec.layers[0].shared_gate = {}; }));
  CHECK(differs("deepseek", [](ModelSpec& spec) {
    spec.layers[2].gate = spec.layers[2].up = spec.layers[2].down = {};
  }));
}

TEST_CASE("mixtures of experts in GGUF files have the same logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("mixtral", "mixtral_stacked", "granitemoe", "deepseek");
  CAPTURE(name);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "model.gguf", {.container = Container::kGguf});
  const GoldenCase golden_case = load_golden_case(name);
  const Model file = open_computable_model(directory / "model.gguf");
  const Transformer model = load_transformer(file, at::kFloat, at::kCPU);
  CHECK(largest_difference(model.logits(model.hidden_states(golden_case.tokens)),
                           golden_case.logits) <= kTolerance);
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

TEST_CASE("logits without RoPE scaling differ from those of transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name =
      GENERATE("llama_rope_linear", "llama_rope_dynamic", "llama_rope_llama3", "llama_rope_yarn",
               "llama_rope_yarn_mscale", "phi3_longrope", "phi3_longrope_short");
  CAPTURE(name);
  GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  golden.source.spec.rope.scaling = {};
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("converted models have the logits that transformers computes from them", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [name, groups] = GENERATE(table<const char*, std::int64_t>(
      {{"llama_mha", 2},  {"llama_bf16", 4},    {"llama_fp16", 1},
       {"qwen3", 2},      {"gemma", 3},         {"olmo", 2},
       {"olmo2", 3},      {"phi", 2},           {"phi_qk_layernorm", 1},
       {"stablelm", 3},   {"starcoder2", 2},    {"nemotron", 2},
       {"falcon_40b", 2}, {"falcon_11b", 1},    {"phi3", 2},
       {"cohere", 2},     {"granite", 3},       {"smollm3", 2},
       {"llava", 2},      {"llava", 3},         {"qwen2_5_vl", 2},
       {"qwen3_vl", 3},   {"internlm2", 3},     {"olmo3", 2},
       {"olmo3", 3},      {"gemma2", 2},        {"gemma2", 3},
       {"gemma3", 2},     {"gemma3", 3},        {"cohere2", 2},
       {"cohere2", 3},    {"qwen2_windows", 2}, {"minicpm", 2},
       {"minicpm", 3},    {"olmoe", 3},         {"olmoe", 2},
       {"qwen2_moe", 2},  {"qwen3_moe", 3},     {"mixtral", 2},
       {"granitemoe", 3}, {"deepseek", 2},      {"chatglm2", 3},
       {"chatglm2", 2},   {"glm", 3},           {"glm", 2}}));
  CAPTURE(name, groups);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "converted", {.kv_heads = {groups}});
  const Model source = open_computable_model(directory / "converted");
  const Transformer model = load_transformer(source, at::kFloat, at::kCPU);
  const auto expected = golden(name) / fmt::format("expected_g{}.safetensors", groups);
  CHECK(largest_difference(model.logits(model.hidden_states(read_tensor(expected, "tokens"))),
                           read_tensor(expected, "logits")) <= kTolerance);
}

TEST_CASE("swapping value heads of any role changes the logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name =
      GENERATE("t5", "t5_v1_1", "mt5", "umt5", "bart", "mbart", "marian", "m2m_100", "pegasus");
  const auto role = GENERATE(AttentionRole::kEncoder, AttentionRole::kSelf, AttentionRole::kCross);
  CAPTURE(name, name_of(role));
  const GoldenCase golden = load_golden_case(name);
  const Parameters parameters = parameters_of(golden);
  swap_value_heads(golden.source.spec, parameters, role);
  CHECK(largest_difference(logits_of(golden.source.spec, parameters, golden.tokens),
                           golden.logits) >= kClearlyWrong);
}

TEST_CASE("a T5 with one wrong setting has other logits than transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("umt5");
  const Parameters parameters = parameters_of(golden);
  ModelSpec& spec = golden.source.spec;
  SECTION("another number of buckets") { spec.relative_bias.buckets = 6; }
  SECTION("another maximum distance") { spec.relative_bias.max_distance = 20; }
  SECTION("the first layer's bias in the second decoder layer") {
    spec.layers[1].relative_bias.clear();
  }
  SECTION("the first layer's bias in the second encoder layer") {
    spec.encoder_layers[1].relative_bias.clear();
  }
  SECTION("scaled scores") { spec.attention_scale.reset(); }
  SECTION("unscaled outputs") { spec.output_scale = 1.0; }
  SECTION("another start token") { spec.decoder_start_token = 5; }
  CHECK(largest_difference(logits_of(spec, parameters, golden.tokens), golden.logits) >=
        kClearlyWrong);
}

TEST_CASE("a BERT with one wrong setting has other logits than transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("roberta");
  const Parameters parameters = parameters_of(golden);
  ModelSpec& spec = golden.source.spec;
  SECTION("causal attention") { spec.causal = true; }
  SECTION("other position offset") { spec.position_offset = 1; }
  SECTION("no token types") { spec.token_type_embedding.clear(); }
  SECTION("no transform before the output") { spec.head_transform = {}; }
  SECTION("norms before attention and MLP") { spec.norm_placement = NormPlacement::kBefore; }
  CHECK(largest_difference(logits_of(spec, parameters, golden.tokens), golden.logits) >=
        kClearlyWrong);
}

TEST_CASE("a newer encoder with one wrong setting has other logits", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  CHECK(differs("modernbert", [](ModelSpec& spec) { spec.window_rope.reset(); }));
  CHECK(differs("modernbert", [](ModelSpec& spec) { ++*spec.sliding_window; }));
  CHECK(differs("modernbert", [](ModelSpec& spec) { --*spec.sliding_window; }));
  CHECK(differs("modernbert",
                [](ModelSpec& spec) { spec.layers[0].attention_norm = spec.layers[1].mlp_norm; }));
  CHECK(differs("modernbert", [](ModelSpec& spec) { spec.head_activation = Activation::kRelu; }));
  CHECK(differs("nomic_bert", [](ModelSpec& spec) { spec.rope.theta = 10000.0; }));
  CHECK(differs("nomic_bert",
                [](ModelSpec& spec) { std::swap(spec.layers[0].gate, spec.layers[0].up); }));
  CHECK(differs("mpnet", [](ModelSpec& spec) { spec.position_embedding.clear(); }));
  CHECK(differs("mpnet", [](ModelSpec& spec) { spec.position_offset = 1; }));
  CHECK(differs("mpnet", [](ModelSpec& spec) { spec.layers[0].relative_bias.clear(); }));
  CHECK(differs("mpnet", [](ModelSpec& spec) { spec.relative_bias.max_distance = 40; }));
  CHECK(differs("mpnet", [](ModelSpec& spec) { spec.attention_scale = 1.0; }));
  for (const char* name : {"jina_bert", "mosaic_bert"}) {
    CAPTURE(name);
    CHECK(differs(name, [](ModelSpec& spec) { spec.positions = PositionKind::kNone; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.alibi.bias_max = 4.0; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.activation = Activation::kRelu; }));
    CHECK(differs(name, [](ModelSpec& spec) { spec.head_activation = Activation::kRelu; }));
  }
}

TEST_CASE("converted encoder models equal repeated heads in transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [name, groups] = GENERATE(from_range(kGroupedCases));
  CAPTURE(name, groups);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "grouped", {.kv_heads = {groups}, .roles = kAllRoles});
  const Model source = open_computable_model(directory / "grouped");
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  const auto expected = golden(name) / fmt::format("expected_g{}.safetensors", groups);
  const at::Tensor tokens = read_tensor(expected, "tokens");
  const at::Tensor logits = read_tensor(expected, "logits");
  CHECK(largest_difference(logits_of(source.spec, parameters, tokens), logits) <= kTolerance);
  swap_value_heads(source.spec, parameters, source.spec.roles().back());
  CHECK(largest_difference(logits_of(source.spec, parameters, tokens), logits) >= kClearlyWrong);
}

TEST_CASE("a Persimmon with one wrong setting has other logits than transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("persimmon");
  const Parameters parameters = parameters_of(golden);
  ModelSpec& spec = golden.source.spec;
  AttentionLayout& attention = spec.layers[1].attention;
  SECTION("queries without their norm") { attention.q_norms = {}; }
  SECTION("keys without their norm") { attention.k_norms = {}; }
  SECTION("norms of queries and keys swapped") { std::swap(attention.q_norms, attention.k_norms); }
  SECTION("all dimensions rotated") { spec.rope.rotary_dim = spec.head_dim; }
  SECTION("ReLU that is not squared") { spec.activation = Activation::kRelu; }
  CHECK(largest_difference(logits_of(spec, parameters, golden.tokens), golden.logits) >=
        kClearlyWrong);
}

TEST_CASE("a Nemotron-NAS with one wrong setting has other logits than transformers", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  GoldenCase golden = load_golden_case("nemotron_nas");
  const Parameters parameters = parameters_of(golden);
  ModelSpec& spec = golden.source.spec;
  SECTION("no attention in the last layer") { spec.layers[4].attention = {}; }
  SECTION("no MLP in the second layer") { spec.layers[1].up = spec.layers[1].gate = {}; }
  SECTION("the first two layers swapped") { std::swap(spec.layers[0], spec.layers[1]); }
  SECTION("an MLP in a layer without one") {
    LayerTensors& layer = spec.layers[2];
    layer.mlp_norm = spec.layers[0].mlp_norm;
    layer.gate = spec.layers[0].gate;
    layer.up = spec.layers[0].up;
    layer.down = spec.layers[0].down;
  }
  CHECK(largest_difference(logits_of(spec, parameters, golden.tokens), golden.logits) >=
        kClearlyWrong);
}

TEST_CASE("a converted Nemotron-NAS equals its expanded form", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const TemporaryDirectory directory;
  const auto logits = [&](const char* target) {
    convert(golden("nemotron_nas"), directory / target, {.kv_heads = {1}, .target = target});
    const Model model = open_computable_model(directory / target);
    const auto tokens = read_tensor(golden("nemotron_nas") / "expected.safetensors", "tokens");
    return window_logits(load_transformer(model, at::kFloat, at::kCPU), tokens);
  };
  CHECK(largest_difference(logits("same"), logits("expanded")) <= 1e-5);
}

}  // namespace regroup
