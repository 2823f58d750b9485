// How the hyper-parameters of a GGUF file are read, and which are refused.
#include <cmath>
#include <limits>
#include <tuple>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "formats/families/gguf_model.h"
#include "formats/families/gguf_parts.h"
#include "formats/model/model.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

/// The hyper-parameters of a small model.
GgufMetadata metadata_of(const std::string& architecture) {
  GgufMetadata metadata("m.gguf");
  const auto key = [&](const std::string& name) { return architecture + "." + name; };
  metadata.set_string("general.architecture", architecture);
  metadata.set_u32(key("context_length"), 64);
  metadata.set_u32(key("embedding_length"), 24);
  metadata.set_u32(key("block_count"), 2);
  metadata.set_u32(key("feed_forward_length"), 40);
  metadata.set_u32(key("attention.head_count"), 6);
  metadata.set_f32(key("attention.layer_norm_epsilon"), 1e-5F);
  metadata.set_f32(key("attention.layer_norm_rms_epsilon"), 1e-6F);
  metadata.set_u32(key("vocab_size"), 10);
  return metadata;
}

ModelSpec described(const GgufMetadata& metadata, const GgufParts& parts = {}) {
  return describe_gguf(metadata, parts);
}

TEST_CASE("kv heads default to the query heads and RoPE rotates whole heads", "[formats]") {
  const ModelSpec spec = described(metadata_of("starcoder2"));
  CHECK(spec.kv_heads == Heads{6, 6});
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.rope.theta == 10000.0);
  CHECK(spec.layers[0].attention.o.bias == "blk.0.attn_output.bias");
  CHECK(spec.layers[0].attention.q.bias.empty());
}

TEST_CASE("deci has kv heads and MLP widths per layer and layers without either", "[formats]") {
  GgufMetadata metadata = metadata_of("deci");
  metadata.set_u32("deci.block_count", 3);
  const auto set = [&](const std::string& key, const std::vector<std::int32_t>& values) {
    metadata.set_array("deci." + key, std::span<const std::int32_t>(values));
  };
  set("attention.head_count", {6, 0, 6});
  set("attention.head_count_kv", {3, 0, 2});
  set("feed_forward_length", {40, 24, 0});
  const ModelSpec spec = described(metadata);
  CHECK(spec.kv_heads == Heads{3, 0, 2});
  CHECK(spec.query_heads == 6);
  CHECK_FALSE(spec.layers[1].attention.present());
  CHECK_FALSE(spec.layers[1].attention_norm.present());
  CHECK(spec.layers[1].intermediate_size == 24);
  CHECK_FALSE(spec.layers[2].up.present());
  CHECK_FALSE(spec.layers[2].mlp_norm.present());
  CHECK(spec.intermediate_size == 40);

  set("attention.head_count_kv", {3, 0, 0});  // a linear map in place of attention
  CHECK_THAT(refusal_of([&] { described(metadata); }), is_bad_input("layer 2", "6", "0 kv heads"));
  set("attention.head_count_kv", {3, 1, 2});  // keys that no query reads
  CHECK_THAT(refusal_of([&] { described(metadata); }), is_bad_input("layer 1", "0 query and 1 kv"));
  set("attention.head_count", {6, 4, 6});
  CHECK_THAT(refusal_of([&] { described(metadata); }), is_bad_input("layer 1", "4 query", "6 and"));
  set("attention.head_count_kv", {3, 0});
  CHECK_THAT(refusal_of([&] { described(metadata); }), is_bad_input("head_count_kv", "2 layers"));
}

TEST_CASE("optional tensors are named in the spec if they are present", "[formats]") {
  const ModelSpec mpt = described(metadata_of("mpt"), {.qkv_bias = true, .head = true});
  CHECK(mpt.layers[0].attention.q.bias == "blk.0.attn_qkv.bias");
  CHECK(mpt.layers[0].up.bias.empty());
  CHECK(mpt.final_norm.bias.empty());
  CHECK(mpt.lm_head == "output.weight");
  CHECK((mpt.positions == PositionKind::kNone));  // without max_alibi_bias
  const ModelSpec learned = described(metadata_of("mpt"), {.position_embedding = true});
  CHECK((learned.positions == PositionKind::kLearned));
  CHECK(learned.position_embedding == "position_embd.weight");
  const ModelSpec phi = described(metadata_of("phi2"), {.fused_qkv = true, .qkv_bias = true});
  CHECK((phi.layers[0].attention.packing == Packing::kQueryKeyValue));
  const ModelSpec falcon = described(metadata_of("falcon"), {.second_norm = true});
  CHECK(falcon.layers[0].attention_norm.weight == "blk.0.attn_norm_2.weight");
  CHECK(falcon.layers[0].mlp_norm.weight == "blk.0.attn_norm.weight");
}

TEST_CASE("ALiBi's largest bias and the clamp are read from MPT's keys", "[formats]") {
  GgufMetadata metadata = metadata_of("mpt");
  metadata.set_f32("mpt.attention.max_alibi_bias", 16.0F);
  metadata.set_f32("mpt.attention.clamp_kqv", 6.0F);
  const ModelSpec spec = described(metadata);
  CHECK((spec.positions == PositionKind::kAlibi));
  CHECK(spec.alibi.bias_max == 16.0);
  CHECK(spec.clip_qkv == 6.0);
}

TEST_CASE("RoPE scaling multiplies the factors as llama.cpp does", "[formats]") {
  GgufMetadata metadata = metadata_of("llama");
  metadata.set_f32("llama.rope.scaling.factor", 4.0F);
  CHECK((described(metadata).rope.scaling.kind == RopeScaling::Kind::kLinear));
  metadata.set_string("llama.rope.scaling.type", "yarn");
  metadata.set_u32("llama.rope.scaling.original_context_length", 16);
  const RopeScaling yarn = described(metadata).rope.scaling;
  CHECK((yarn.kind == RopeScaling::Kind::kYarn));
  CHECK(yarn.original_positions == 16.0);
  CHECK(yarn.attention_factor == Catch::Approx(0.1 * std::log(4.0) + 1.0));
  metadata.set_string("llama.rope.scaling.type", "longrope");
  CHECK(described(metadata).not_computable == "rope.scaling.type longrope");
  metadata.set_string("llama.rope.scaling.type", "none");
  CHECK((described(metadata).rope.scaling.kind == RopeScaling::Kind::kNone));
  CHECK(described(metadata, {.rope_factors = true}).not_computable ==
        "frequency factors in rope_freqs.weight");
  CHECK(described(metadata_of("phi3"), {.longrope_factors = true}).not_computable ==
        "frequency factors in rope_factors_long.weight");
  // Other architectures do not read them.
  CHECK(described(metadata_of("qwen2"), {.rope_factors = true}).not_computable.empty());
}

// What llama.cpp's converter writes for Llama 3's scaling of 8 pairs.
std::vector<double> llama3_divisors(double factor, double original, double theta) {
  std::vector<double> divisors;
  for (int pair = 0; pair < 8; ++pair) {
    const double wavelength = 2.0 * 3.141592653589793 * std::pow(theta, pair / 8.0);
    const double smooth = (original / wavelength - 1.0) / 3.0;
    const double divisor = wavelength < original / 4.0 ? 1.0
                           : wavelength > original     ? factor
                                                       : 1.0 / ((1.0 - smooth) / factor + smooth);
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

GgufMetadata metadata_of_16_dimensions() {
  GgufMetadata metadata = metadata_of("llama");
  metadata.set_u32("llama.embedding_length", 96);
  metadata.set_f32("llama.rope.freq_base", 10000.0F);
  return metadata;
}

ModelSpec with_divisors(const std::vector<double>& divisors) {
  return described(metadata_of_16_dimensions(), {.rope_factors = true, .rope_divisors = divisors});
}

TEST_CASE("frequency factors alone tell Llama 3's scaling", "[formats]") {
  for (const auto& [factor, original] : {std::pair(8.0, 64.0), {32.0, 8192.0}, {4.0, 1000.0}}) {
    CAPTURE(factor, original);
    const auto divisors = llama3_divisors(factor, original, 10000.0);
    const ModelSpec spec = with_divisors(divisors);
    CHECK(spec.not_computable.empty());
    CHECK((spec.rope.scaling.kind == RopeScaling::Kind::kLlama3));
    CHECK(spec.rope.scaling.factor == factor);
    CHECK(spec.rope.scaling.original_positions == original);
    const auto again = gguf_rope_factors(spec.rope);
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      CHECK(again[i] == Catch::Approx(divisors[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("frequency factors of no formula divide each frequency", "[formats]") {
  const std::vector<double> odd{1, 1.5, 1, 2, 3, 5, 8, 13};
  const ModelSpec spec = with_divisors(odd);
  CHECK(spec.not_computable.empty());
  CHECK((spec.rope.scaling.kind == RopeScaling::Kind::kLongRope));
  CHECK(spec.rope.scaling.attention_factor == 1.0);
  CHECK(gguf_rope_factors(spec.rope) == std::vector<float>(odd.begin(), odd.end()));
  const GgufMetadata written = gguf_metadata_for(spec);
  CHECK(gguf_parts_for(spec).rope_factors);
  CHECK_FALSE(written.text("regroup.rope_scaling"));
  CHECK((describe_gguf(written, gguf_parts_for(spec)).rope.scaling == spec.rope.scaling));
  CHECK((with_divisors(std::vector(8, 1.0)).rope.scaling == RopeScaling()));
  const RopeScaling linear = with_divisors(std::vector(8, 4.0)).rope.scaling;
  CHECK((linear.kind == RopeScaling::Kind::kLinear));
  CHECK(linear.factor == 4.0);
}

TEST_CASE("frequency factors that do not fit are not computed", "[formats]") {
  CHECK(with_divisors(std::vector(7, 4.0)).not_computable ==
        "frequency factors in rope_freqs.weight");
  GgufMetadata both = metadata_of_16_dimensions();
  both.set_f32("llama.rope.scaling.factor", 4.0F);
  CHECK(described(both, {.rope_factors = true, .rope_divisors = std::vector(8, 4.0)})
            .not_computable == "frequency factors in rope_freqs.weight beside rope.scaling");
  const TemporaryDirectory directory;
  for (const float value : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), 2.0F}) {
    put_checkpoint(directory / "m.safetensors",
                   std::vector{tensor_of("rope_freqs.weight", DType::kF32, {2},
                                         std::vector<double>{1.0, value})});
    const GgufParts parts = gguf_parts_in(open_checkpoint(directory / "m.safetensors"));
    CHECK(parts.rope_factors);
    CHECK(parts.rope_divisors.size() == (value == 2.0F ? 2 : 0));
  }
}

TEST_CASE("neutral RoPE scalings are dropped and impossible ones refused", "[formats]") {
  const auto metadata_with = [](const std::string& type, float factor) {
    GgufMetadata metadata = metadata_of("llama");
    metadata.set_string("llama.rope.scaling.type", type);
    metadata.set_f32("llama.rope.scaling.factor", factor);
    return metadata;
  };
  const auto scaling = [&](const std::string& type, float factor) {
    return described(metadata_with(type, factor)).rope.scaling;
  };
  CHECK((scaling("linear", 1.0F).kind == RopeScaling::Kind::kNone));
  CHECK((scaling("linear", 0.0F).kind == RopeScaling::Kind::kNone));  // 0 means not set
  CHECK((scaling("yarn", 0.0F).kind == RopeScaling::Kind::kNone));
  CHECK(scaling("yarn", 0.5F).attention_factor == 1.0);  // the context is not stretched
  constexpr float kUnbounded = std::numeric_limits<float>::infinity();
  for (const float factor : {-2.0F, kUnbounded, std::numeric_limits<float>::quiet_NaN()}) {
    for (const char* type : {"linear", "yarn", "none"}) {
      CAPTURE(type, factor);
      CHECK_THAT(refusal_of([&] { scaling(type, factor); }),
                 is_bad_input("m.gguf", "llama.rope.scaling.factor", "positive"));
    }
  }
  GgufMetadata louder = metadata_with("linear", 2.0F);
  louder.set_f32("llama.rope.scaling.attn_factor", 1.5F);
  CHECK(described(louder).not_computable == "rope.scaling.attn_factor without yarn");
}

TEST_CASE("partial RoPE with an odd or too large dimension is refused", "[formats]") {
  GgufMetadata metadata = metadata_of("gptneox");
  metadata.set_u32("gptneox.rope.dimension_count", 2);
  CHECK(described(metadata).rope.rotary_dim == 2);
  const auto refusal = [&](std::uint32_t dimensions, float base) {
    metadata.set_u32("gptneox.rope.dimension_count", dimensions);
    metadata.set_f32("gptneox.rope.freq_base", base);
    return refusal_of([&] { described(metadata); });
  };
  CHECK_THAT(refusal(3, 1e4F), is_bad_input("m.gguf", "3 of 4 dimensions", "an even part"));
  CHECK_THAT(refusal(6, 1e4F), is_bad_input("m.gguf", "6 of 4 dimensions"));
  CHECK_THAT(refusal(2, 0.0F), is_bad_input("m.gguf", "base 0"));
  CHECK_THAT(refusal(2, std::numeric_limits<float>::quiet_NaN()), is_bad_input("base nan"));
}

TEST_CASE("multipliers of embeddings, scores, residuals and logits are read, and 0 means none",
          "[formats]") {
  GgufMetadata metadata = metadata_of("granite");
  CHECK(described(metadata).output_scale == 1.0);
  metadata.set_f32("granite.embedding_scale", 12.0F);
  metadata.set_f32("granite.residual_scale", 0.5F);
  metadata.set_f32("granite.attention.scale", 0.25F);
  metadata.set_f32("granite.logit_scale", 8.0F);
  const ModelSpec spec = described(metadata);
  CHECK(spec.embedding_scale == 12.0);
  CHECK(spec.residual_scale == 0.5);
  CHECK(spec.attention_scale == 0.25);
  CHECK(spec.output_scale == 0.125);
  for (const char* key : {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"}) {
    metadata.set_f32(std::string("granite.") + key, 0.0F);
  }
  const ModelSpec none = described(metadata);
  CHECK(none.embedding_scale * none.residual_scale * none.output_scale == 1.0);
  CHECK_FALSE(none.attention_scale);
  metadata = metadata_of("command-r");
  metadata.set_f32("command-r.logit_scale", 0.0625F);
  CHECK(described(metadata).output_scale == 0.0625);
}

TEST_CASE("every fourth layer of SmolLM3's graph has no RoPE", "[formats]") {
  GgufMetadata metadata = metadata_of("smollm3");
  metadata.set_u32("smollm3.block_count", 8);
  const ModelSpec spec = described(metadata);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(spec.layers[i].without_rope == (i == 3 || i == 7));
  }
}

TEST_CASE("attention that ModelSpec cannot express is read but not computed", "[formats]") {
  const std::string norms = "norms of queries and keys as this architecture keeps them";
  CHECK(described(metadata_of("stablelm"), {.qk_norm = true}).not_computable == norms);
  CHECK(described(metadata_of("stablelm")).not_computable.empty());
  CHECK(described(metadata_of("mpt"), {.qk_norm = true}).not_computable == norms);
  CHECK(described(metadata_of("command-r"), {.qk_norm = true}).not_computable == norms);
  CHECK(described(metadata_of("qwen3"), {.qk_norm = true}).not_computable.empty());
  GgufMetadata olmo = metadata_of("olmo2");
  CHECK(described(olmo).not_computable.empty());
  olmo.set_u32("olmo2.attention.sliding_window", 16);
  CHECK(described(olmo).not_computable == "a sliding window in some of the layers");
}

TEST_CASE("the vocabulary size defaults to the number of tokens", "[formats]") {
  GgufMetadata metadata = metadata_of("llama");
  metadata.remove_if([](std::string_view key) { return key == "llama.vocab_size"; });
  const std::string key = "tokenizer.ggml.tokens";
  metadata.set_array(key, std::span<const std::string>(std::vector<std::string>{"a", "b", "c"}));
  CHECK(described(metadata).vocab_size == 3);
  const auto refusal_of_count = [&](std::uint64_t count) {
    metadata.set({key, GgufType::kArray, gguf_u32(8) + gguf_u64(count)});
    return refusal_of([&] { described(metadata); });
  };
  CHECK_THAT(refusal_of_count(0), is_bad_input("m.gguf", key, "vocab_size"));
  CHECK_THAT(refusal_of_count(std::uint64_t{1} << 32), is_bad_input("m.gguf", key, "vocab_size"));
}

TEST_CASE("models with unknown architectures or experts or several files are not known",
          "[formats]") {
  GgufMetadata mixtral = metadata_of("llama");
  mixtral.set_u32("llama.expert_count", 8);
  CHECK(is_known_gguf_model(mixtral));
  CHECK(is_known_gguf_model(metadata_of("llama")));
  CHECK_FALSE(is_known_gguf_model(metadata_of("rwkv")));
  CHECK_FALSE(is_known_gguf_model(GgufMetadata("m.gguf")));
  GgufMetadata numbered("m.gguf");
  numbered.set_u32("general.architecture", 7);
  CHECK_FALSE(is_known_gguf_model(numbered));
  for (const auto& [key, none, some] :
       {std::tuple{"gemma.expert_count", 0U, 8U}, std::tuple{"split.count", 1U, 2U}}) {
    GgufMetadata metadata = metadata_of("gemma");
    metadata.set_u32(key, none);
    CHECK(is_known_gguf_model(metadata));
    metadata.set_u32(key, some);
    CHECK_FALSE(is_known_gguf_model(metadata));
  }
}

TEST_CASE("impossible hyper-parameters are refused by name", "[formats]") {
  const auto refusal = [](const std::string& key, std::uint32_t value) {
    GgufMetadata metadata = metadata_of("llama");
    metadata.set_u32("llama." + key, value);
    return refusal_of([&] { described(metadata); });
  };
  CHECK_THAT(refusal("block_count", 0), is_bad_input("llama.block_count", "0"));
  CHECK_THAT(refusal("block_count", 513), is_bad_input("llama.block_count", "513", "512"));
  CHECK_THAT(refusal("attention.head_count", 0), is_bad_input("llama.attention.head_count"));
  CHECK_THAT(refusal("attention.head_count", 7), is_bad_input("24", "7 heads"));
  CHECK_THAT(refusal("attention.head_count_kv", 4), is_bad_input("layer 0", "4 kv heads"));
  CHECK_THAT(refusal("attention.value_length", 8), is_bad_input("another dimension"));
  CHECK_THAT(refusal("rope.dimension_count", 2), is_bad_input("2 of 4 dimensions"));
  CHECK_THAT(refusal("feed_forward_length", 0), is_bad_input("llama.feed_forward_length"));
  CHECK_THAT(refusal("expert_count", 8), is_bad_input("llama.expert_used_count"));
  CHECK_THAT(refusal("embedding_length", 3'000'000'000),
             is_bad_input("m.gguf", "llama.embedding_length is 3000000000", "1 to 2147483648"));
  CHECK_THAT(refusal("feed_forward_length", 3'000'000'000),
             is_bad_input("m.gguf", "llama.feed_forward_length is 3000000000", "at most"));
  CHECK_THAT(refusal("attention.head_count", 65537),
             is_bad_input("m.gguf", "llama.attention.head_count is 65537", "1 to 65536"));
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon", "vocab_size"}) {
    GgufMetadata metadata = metadata_of("llama");
    metadata.remove_if([&](std::string_view name) { return name == "llama." + std::string(key); });
    CHECK_THAT(refusal_of([&] { described(metadata); }), is_bad_input(key));
  }
  GgufMetadata split = metadata_of("llama");
  split.set_u32("split.count", 3);
  CHECK_THAT(refusal_of([&] { described(split); }), is_bad_input("one of 3 files"));
}

/// The error for a file with a small model's hyper-parameters and the given tensors.
Error refusal_of_file(const std::string& architecture, const std::vector<std::string>& tensors) {
  const TemporaryDirectory directory;
  GgufPieces pieces{.tensors = tensors, .data_bytes = 128 * tensors.size()};
  const GgufMetadata metadata = metadata_of(architecture);
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    pieces.entries.push_back(
        gguf_entry(entry.key, static_cast<std::uint32_t>(entry.type), entry.bytes));
  }
  put_file(directory / "m.gguf", pieces.text());
  return refusal_of([&] { open_model(directory / "m.gguf"); });
}

TEST_CASE("a GGUF file whose tensors do not match its architecture is refused", "[formats]") {
  const std::string embedding = gguf_tensor("token_embd.weight", {4, 8}, 0, 0);
  CHECK_THAT(refusal_of_file("bloom", {embedding}),
             is_bad_input("m.gguf", "block_count is 2", "1 tensors"));
  CHECK_THAT(refusal_of_file("bloom", {gguf_tensor("token_embd.weight", {4}, 0, 0),
                                       gguf_tensor("a", {4}, 0, 32)}),
             is_bad_input("m.gguf", "token_embd.weight has shape [4]", "two dimensions"));
  CHECK_THAT(refusal_of_file("bloom", {gguf_tensor("token_embd.weight", {4, 0}, 0, 0),
                                       gguf_tensor("a", {32}, 0, 0)}),
             is_bad_input("m.gguf", "token_embd.weight has shape [0, 4]"));
  CHECK_THAT(refusal_of_file("phi2", {embedding, gguf_tensor("blk.0.attn_qkv.weight", {4}, 0, 128),
                                      gguf_tensor("blk.0.attn_q.bias", {4}, 0, 160)}),
             is_bad_input("m.gguf", "fused weights with separate biases"));
}

}  // namespace
}  // namespace regroup
