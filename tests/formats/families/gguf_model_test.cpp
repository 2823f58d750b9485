// GGUF models as specs, and the GGUF architectures that Hugging Face models are written as.
#include "formats/families/gguf_model.h"

#include <cmath>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "formats/tensors/gguf.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

Model opened_golden(const std::string& name) { return open_model(golden(name)); }

// The spec of the GGUF file that is written for `spec`.
ModelSpec written(const ModelSpec& spec) {
  return describe_gguf(gguf_metadata_for(spec), gguf_parts_for(spec));
}

TEST_CASE("GGUF files of several architectures have exactly the tensors of their specs",
          "[formats]") {
  for (const char* name : {"llama", "gpt2", "bloom", "gptneox"}) {
    CAPTURE(name);
    const Model model = opened_golden("gguf/" + std::string(name) + ".gguf");
    CHECK((model.convention == Convention::kGguf));
    CHECK(model.gguf->text("general.architecture") == name);
    CHECK(model.companions.empty());
    check_all_shapes(model.spec, model.checkpoint);
    CHECK(expected_tensors(model.spec).size() == model.checkpoint.tensors().size());
  }
}

TEST_CASE("a llama GGUF file is read as a spec", "[formats]") {
  const ModelSpec spec = opened_golden("gguf/llama.gguf").spec;
  CHECK(spec.family == "llama");
  CHECK(spec.kv_heads == Heads{2, 2});
  CHECK(spec.head_dim == 8);
  CHECK(spec.vocab_size == 16);
  CHECK(spec.max_positions == 64);
  CHECK(spec.rope.theta == 500.0);
  CHECK(spec.rope.interleaved);
  CHECK(spec.norm_epsilon == 1e-5);
  CHECK(spec.lm_head.empty());
  CHECK((spec.layers[1].attention.packing == Packing::kSeparate));
  CHECK(spec.layers[1].attention.k.weight == "blk.1.attn_k.weight");
  CHECK(spec.kv_heads_key == std::vector<std::string>{"llama.attention.head_count_kv"});
}

TEST_CASE("a GPT-NeoX GGUF file is read as a spec", "[formats]") {
  const ModelSpec spec = opened_golden("gguf/gptneox.gguf").spec;
  CHECK((spec.layers[0].attention.packing == Packing::kQueryKeyValue));
  CHECK(spec.layers[0].attention.v.bias == "blk.0.attn_qkv.bias");
  CHECK(spec.parallel_residual);
  CHECK(spec.rope.rotary_dim == 2);
  CHECK_FALSE(spec.rope.interleaved);
  CHECK(spec.lm_head == "output.weight");
  CHECK((spec.activation == Activation::kGeluTanh));
}

TEST_CASE("the summary of a GGUF file", "[formats]") {
  const auto path = golden("gguf/llama.gguf");
  const ModelSummary summary = summarize_model(path, open_checkpoint(path));
  CHECK(summary.family == "llama");
  CHECK(summary.architecture == "llama");
  CHECK(summary.attention == "gqa");
  CHECK(summary.kv_heads == Heads{2, 2});
  CHECK(summary.dtype == "Q8_0");
  CHECK(summary.kv_bytes_per_token == 2 * 32 * 2);  // 2 · 2 · 8 elements a layer, in F16
  CHECK(summary.parameters == 16 * 32 + 2 * (64 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 256 * 32) + 32);
}

TEST_CASE("a GGUF file of an unknown architecture can be inspected but not opened", "[formats]") {
  const TemporaryDirectory directory;
  const auto path = directory / "m.gguf";
  put_file(path, GgufPieces{.entries = {gguf_entry("general.architecture", 8, gguf_string("x"))},
                            .tensors = {gguf_tensor("blk.0.w", {4}, 0, 0)},
                            .data_bytes = 32}
                     .text());
  const ModelSummary summary = summarize_model(path, open_checkpoint(path));
  CHECK(summary.family == "unknown");
  CHECK(summary.architecture == "x");
  CHECK(summary.layers == 1);
  CHECK_THAT(refusal_of([&] { open_model(path); }), is_bad_input("m.gguf", "architecture x"));
}

struct Written {
  const char* fixture;
  const char* architecture;
};

constexpr Written kWritten[] = {{"llama", "llama"},
                                {"llama_mha", "llama"},
                                {"llama_rope_linear", "llama"},
                                {"llama_rope_llama3", "llama"},
                                {"mistral", "llama"},
                                {"qwen2", "qwen2"},  // llama would also do
                                {"qwen3", "qwen3"},
                                {"gemma", "gemma"},
                                {"olmo", "olmo"},
                                {"olmo2", "olmo2"},
                                {"phi", "phi2"},
                                {"phi3", "phi3"},
                                {"cohere", "command-r"},
                                {"granite", "granite"},
                                {"smollm3", "smollm3"},
                                {"gptj", "phi2"},
                                {"codegen", "phi2"},
                                {"baichuan_7b", "llama"},
                                {"internlm2", "llama"},
                                {"qwen", "llama"},
                                {"mixtral", "llama"},
                                {"mixtral_stacked", "llama"},
                                {"granitemoe", "granitemoe"},
                                {"deepseek", "deepseek"},
                                {"stablelm", "stablelm"},
                                {"starcoder2", "starcoder2"},
                                {"gpt_neox", "gptneox"},
                                {"gpt_neox_sequential", "gptneox"},
                                {"gpt2", "gpt2"},
                                {"gpt_bigcode", "starcoder"},
                                {"gpt_bigcode_mha", "starcoder"},
                                {"bloom", "bloom"},
                                {"mpt", "mpt"},
                                {"falcon_7b", "falcon"},
                                {"falcon_40b", "falcon"}};

void check_sizes(const ModelSpec& target, const ModelSpec& spec) {
  CHECK(target.hidden_size == spec.hidden_size);
  CHECK(target.query_heads == spec.query_heads);
  CHECK(target.head_dim == spec.head_dim);
  CHECK(target.intermediate_size == spec.intermediate_size);
  CHECK(target.vocab_size == spec.vocab_size);
  CHECK(target.kv_heads == spec.kv_heads);
  CHECK(target.layer_count() == spec.layer_count());
}

void check_positions(const ModelSpec& target, const ModelSpec& spec) {
  CHECK((target.positions == spec.positions));
  CHECK(target.rope.theta == spec.rope.theta);
  CHECK(target.rope.rotary_dim == spec.rope.rotary_dim);
  CHECK((target.rope.scaling.kind == spec.rope.scaling.kind));
  CHECK(target.rope.scaling.factor == spec.rope.scaling.factor);
  CHECK(target.alibi.bias_max == spec.alibi.bias_max);
}

void check_norms(const ModelSpec& target, const ModelSpec& spec) {
  CHECK((target.norm == spec.norm));
  CHECK(target.norm_epsilon == spec.norm_epsilon);
  CHECK((target.norm_placement == spec.norm_placement));
  CHECK(target.norm_without_parameters == spec.norm_without_parameters);
  CHECK((target.qk_norm == spec.qk_norm));
  CHECK(target.layers[1].mlp_norm.present() == spec.layers[1].mlp_norm.present());
}

void check_layers(const ModelSpec& target, const ModelSpec& spec) {
  CHECK(((target.activation == spec.activation) != (spec.activation == Activation::kGeluErf)));
  CHECK(target.parallel_residual == spec.parallel_residual);
  CHECK(target.clip_qkv == spec.clip_qkv);
  CHECK(target.embedding_scale == spec.embedding_scale);
  CHECK(target.embedding_norm.present() == spec.embedding_norm.present());
  CHECK(target.not_computable.empty());
  CHECK(target.layers[1].gate.present() == spec.layers[1].gate.present());
}

// The graph has all tensors of the model. The tensors that it adds are zeros or copies.
void check_tensors(const ModelSpec& target, const ModelSpec& spec) {
  CHECK(target.layers[1].attention.k.bias.empty() <= spec.layers[1].attention.k.bias.empty());
  CHECK(target.layers[1].up.bias.empty() <= spec.layers[1].up.bias.empty());
  CHECK(target.final_norm.bias.empty() <= spec.final_norm.bias.empty());
  CHECK(target.lm_head.empty() <= spec.lm_head.empty());
  CHECK(target.lm_head_bias.empty() <= spec.lm_head_bias.empty());
}

TEST_CASE("every Hugging Face model is written as an architecture that has all its tensors",
          "[formats]") {
  for (const auto& [fixture, architecture] : kWritten) {
    CAPTURE(fixture);
    const ModelSpec spec = opened_golden(fixture).spec;
    const ModelSpec target = written(spec);
    CHECK(target.architecture == architecture);
    check_sizes(target, spec);
    check_positions(target, spec);
    check_norms(target, spec);
    check_layers(target, spec);
    check_tensors(target, spec);
  }
}

TEST_CASE("all parameters of YaRN and Llama 3 RoPE scaling are written", "[formats]") {
  ModelSpec spec = opened_golden("llama").spec;
  spec.rope.scaling.kind = RopeScaling::Kind::kYarn;
  spec.rope.scaling.factor = 4.0;
  spec.rope.scaling.original_positions = 16.0;
  spec.rope.scaling.attention_factor = 1.25;
  const RopeScaling yarn = written(spec).rope.scaling;
  CHECK((yarn.kind == RopeScaling::Kind::kYarn));
  CHECK(yarn.factor == 4.0);
  CHECK(yarn.original_positions == 16.0);
  CHECK(yarn.attention_factor == Catch::Approx(1.25).epsilon(1e-6));

  const RopeScaling llama3 = opened_golden("llama_rope_llama3").spec.rope.scaling;
  const RopeScaling same = written(opened_golden("llama_rope_llama3").spec).rope.scaling;
  CHECK(same.factor == llama3.factor);
  CHECK(same.original_positions == llama3.original_positions);
  CHECK(same.low_frequency_factor == llama3.low_frequency_factor);
  CHECK(same.high_frequency_factor == llama3.high_frequency_factor);
}

TEST_CASE("a Llama whose layers differ in kv heads is written as deci", "[formats]") {
  ModelSpec spec = opened_golden("llama_bf16").spec;
  spec.kv_heads = {4, 6};
  const ModelSpec target = written(spec);
  CHECK(target.architecture == "deci");
  CHECK(target.kv_heads == Heads{4, 6});
}

TEST_CASE("models without a suitable GGUF architecture are refused with the obstacle",
          "[formats]") {
  const auto refusal = [](const std::string& fixture) {
    const ModelSpec spec = opened_golden(fixture).spec;
    return refusal_of([&] { gguf_metadata_for(spec); });
  };
  CHECK_THAT(refusal("falcon_rw"), is_wrong_usage("falcon", "positions alibi", "rope needed"));
  CHECK_THAT(refusal("opt"), is_wrong_usage("opt"));
  CHECK_THAT(refusal("bloom_12"), is_wrong_usage("bloom", "norms in other places"));
  CHECK_THAT(refusal("mpt_12"), is_wrong_usage("mpt", "attention scaled by 0.6"));
  CHECK_THAT(refusal("stablelm_qk"), is_wrong_usage("stablelm", "norms of queries and keys"));
  CHECK_THAT(refusal("llama_rope_dynamic"), is_wrong_usage("llama", "dynamic RoPE"));
  CHECK_THAT(refusal("llama_rope_yarn"), is_wrong_usage("beta_fast"));
  CHECK_THAT(refusal("llama_rope_yarn_mscale"), is_wrong_usage("truncate"));
  CHECK_THAT(refusal("olmoe"), is_wrong_usage("olmoe", "clipped queries"));
  CHECK_THAT(refusal("qwen2_moe"), is_wrong_usage("qwen2moe", "layers without experts"));
  CHECK_THAT(refusal("qwen3_moe"), is_wrong_usage("qwen3moe", "layers without experts"));
  CHECK_THAT(refusal("nemotron"), is_wrong_usage("nemotron", "heads of 8 dimensions"));
}

TEST_CASE("experts that llama.cpp computes in another way are refused", "[formats]") {
  const auto refusal = [](const char* fixture, auto change) {
    ModelSpec spec = opened_golden(fixture).spec;
    change(spec);
    return refusal_of([&] { gguf_metadata_for(spec); });
  };
  CHECK_THAT(refusal("mixtral", [](ModelSpec& spec) { spec.routing.normalised = false; }),
             is_wrong_usage("weights of experts not divided"));
  CHECK_THAT(refusal("mixtral", [](ModelSpec& spec) { spec.routing.scale = 2.0; }),
             is_wrong_usage("another scale"));
  CHECK_THAT(refusal("deepseek", [](ModelSpec& spec) { spec.routing.normalised = true; }),
             is_wrong_usage("deepseek: weights of experts divided"));
  CHECK_THAT(refusal("deepseek", [](ModelSpec& spec) { spec.layers[2].intermediate_size = 24; }),
             is_wrong_usage("different widths"));
  CHECK_THAT(refusal("deepseek", [](ModelSpec& spec) { spec.layers[2].up = {}; }),
             is_wrong_usage("no shared expert"));
  CHECK_THAT(refusal("olmoe",
                     [](ModelSpec& spec) {
                       spec.clip_qkv.reset();
                       spec.kv_heads = {2, 2};
                     }),
             is_wrong_usage("olmoe", "fewer kv heads"));
  CHECK_THAT(refusal("granitemoe", [](ModelSpec& spec) { spec.layers[1].experts = {}; }),
             is_wrong_usage("layers without experts"));
}

TEST_CASE("experts in a GGUF file that cannot hold are refused", "[formats]") {
  const ModelSpec spec = opened_golden("deepseek").spec;
  const auto read = [&](const char* key, std::uint32_t value) {
    GgufMetadata metadata = gguf_metadata_for(spec);
    metadata.set_u32(key, value);
    return describe_gguf(metadata, gguf_parts_for(spec));
  };
  const auto refusal = [&](const char* key, std::uint32_t value) {
    return refusal_of([&] { read(key, value); });
  };
  CHECK_THAT(refusal("deepseek.expert_count", 0), is_bad_input("with experts only"));
  CHECK_THAT(refusal("deepseek.expert_count", 20000), is_bad_input("16384"));
  CHECK_THAT(refusal("deepseek.expert_used_count", 6), is_bad_input("6 of 5"));
  CHECK_THAT(refusal("deepseek.expert_used_count", 0), is_bad_input("expert_used_count"));
  CHECK_THAT(refusal("deepseek.leading_dense_block_count", 3), is_bad_input("is 3, less than 3"));
  CHECK_THAT(refusal("deepseek.expert_shared_count", 1U << 30),
             is_bad_input("expert_shared_count"));
  CHECK(read("deepseek.expert_gating_func", 2).not_computable ==
        "experts chosen by another function than softmax");
  CHECK(read("deepseek.expert_gating_func", 1).not_computable.empty());
  GgufMetadata granite = gguf_metadata_for(opened_golden("granitemoe").spec);
  granite.set_u32("granitemoe.expert_shared_feed_forward_length", 8);
  CHECK(describe_gguf(granite, gguf_parts_for(opened_golden("granitemoe").spec)).not_computable ==
        "a shared expert in this architecture");
}

TEST_CASE("reordered ALiBi slopes are refused", "[formats]") {
  ModelSpec spec = opened_golden("bloom").spec;
  const auto slopes = alibi_slopes_per_layer(spec).front();
  spec.alibi.slopes = {slopes};
  CHECK(gguf_metadata_for(spec).text("general.architecture") == "bloom");
  spec.alibi.slopes = {{slopes.rbegin(), slopes.rend()}};
  CHECK_THAT(refusal_of([&] { gguf_metadata_for(spec); }), is_wrong_usage("slopes"));
}

TEST_CASE("a note names what llama.cpp computes differently", "[formats]") {
  CHECK(gguf_differences(opened_golden("gpt2").spec).empty());
  CHECK_THAT(gguf_differences(opened_golden("gpt_neox").spec).at(0),
             Catch::Matchers::ContainsSubstring("tanh"));
  const ModelSpec mistral = opened_golden("mistral").spec;
  CHECK_THAT(gguf_differences(mistral).at(0), Catch::Matchers::ContainsSubstring("5 tokens"));
  CHECK(written(mistral).max_positions == 5);
}

TEST_CASE("Llama 3 frequency factors keep or divide or blend frequencies", "[formats]") {
  RopeSpec rope{.theta = 10000.0, .rotary_dim = 6, .interleaved = false, .scaling = {}};
  // Wavelengths 2π · (1, 21.5, 464): 20.9 turns, 0.97 and 0.045 in 131 positions.
  rope.scaling.kind = RopeScaling::Kind::kLlama3;
  rope.scaling.factor = 8.0;
  rope.scaling.original_positions = 131.0;
  rope.scaling.low_frequency_factor = 0.5;
  rope.scaling.high_frequency_factor = 4.0;
  const std::vector<float> factors = gguf_rope_factors(rope);
  REQUIRE(factors.size() == 3);
  CHECK(factors[0] == 1.0F);
  CHECK(factors[2] == 8.0F);
  const double turns = 131.0 / (2.0 * 3.14159265358979 * std::cbrt(10000.0));
  const double kept = (turns - 0.5) / 3.5;
  CHECK(factors[1] == Catch::Approx(1.0 / ((1.0 - kept) / 8.0 + kept)));
}

}  // namespace
}  // namespace regroup
