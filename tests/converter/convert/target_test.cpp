// Which architecture a conversion writes, and when it refuses.
#include "converter/convert/target.h"

#include <cmath>
#include <cstring>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "converter/convert/equivalence.h"
#include "formats/families/family.h"
#include "formats/spec/alibi.h"
#include "formats/spec/config_writers.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

std::string target_of(std::string_view name, std::int64_t kv_heads, std::string target = "auto") {
  return plan_conversion(open_model(golden(name)),
                         {.kv_heads = {kv_heads}, .target = std::move(target)})
      .target.architecture;
}

TEST_CASE("a family whose loaders support grouped heads keeps its architecture", "[converter]") {
  CHECK(target_of("llama_mha", 2) == "LlamaForCausalLM");
  CHECK(target_of("falcon_40b", 2) == "FalconForCausalLM");
  CHECK(target_of("falcon_rw", 1) == "FalconForCausalLM");
  CHECK(target_of("gpt_bigcode_mha", 1) == "GPTBigCodeForCausalLM");
  CHECK(target_of("bloom", 6) == "BloomForCausalLM");  // the same number of heads
}

TEST_CASE("a family without a kv head key is written as an equivalent architecture",
          "[converter]") {
  CHECK(target_of("gpt_neox", 2) == "PhiForCausalLM");
  CHECK(target_of("gpt_neox_sequential", 3) == "Starcoder2ForCausalLM");
  CHECK(target_of("gptj", 2) == "PhiForCausalLM");
  CHECK(target_of("codegen", 2) == "PhiForCausalLM");
  CHECK(target_of("gpt2", 1) == "GPTBigCodeForCausalLM");
  CHECK(target_of("opt", 1) == "GPTBigCodeForCausalLM");
  CHECK(target_of("baichuan_7b", 2) == "LlamaForCausalLM");
  CHECK(target_of("internlm", 2) == "LlamaForCausalLM");
  CHECK(target_of("internlm2", 2, "llama") == "LlamaForCausalLM");
  CHECK(target_of("chatglm2", 2, "glm") == "GlmForCausalLM");
  CHECK(target_of("qwen", 2) == "Qwen2ForCausalLM");  // without zeros as biases of o
  CHECK(target_of("gpt_neox_sequential", 2, "starcoder2") == "Starcoder2ForCausalLM");
  CHECK(target_of("gpt_neox_sequential", 2, "Starcoder2ForCausalLM") == "Starcoder2ForCausalLM");
}

TEST_CASE("rows of a normalised output projection have norm 1 in another architecture",
          "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("baichuan2_7b"), directory / "llama", {.target = "llama"});
  const auto rows_of = [](const std::filesystem::path& model) {
    const Checkpoint checkpoint = open_checkpoint(model);
    const std::string bytes = bytes_of(checkpoint, "lm_head.weight");
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return std::pair(numbers, static_cast<std::size_t>(checkpoint.at("lm_head.weight").shape[1]));
  };
  const auto [stored, width] = rows_of(golden("baichuan2_7b"));
  const auto [written, same_width] = rows_of(directory / "llama");
  REQUIRE(written.size() == stored.size());
  for (std::size_t first = 0; first < stored.size(); first += width) {
    double squares = 0.0;
    for (std::size_t i = first; i < first + width; ++i) {
      squares += static_cast<double>(stored[i]) * static_cast<double>(stored[i]);
    }
    for (std::size_t i = first; i < first + width; ++i) {
      CHECK(written[i] == static_cast<float>(static_cast<double>(stored[i]) / std::sqrt(squares)));
    }
  }
}

TEST_CASE("projections that are fused and separated again keep every byte", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("equal_heads"), directory / "fused", {.target = "phi3"});
  convert(directory / "fused", directory / "back", {.target = "llama"});
  const Checkpoint source = open_checkpoint(golden("equal_heads"));
  const Checkpoint fused = open_checkpoint(directory / "fused");
  const Checkpoint back = open_checkpoint(directory / "back");
  CHECK(back.tensors().size() == source.tensors().size());
  for (const TensorInfo& tensor : source.tensors()) {
    CAPTURE(tensor.name);
    CHECK((bytes_of(back, tensor.name) == bytes_of(source, tensor.name)));
  }
  const std::string mlp = "model.layers.1.mlp.";
  CHECK((bytes_of(fused, mlp + "gate_up_proj.weight") ==
         bytes_of(source, mlp + "gate_proj.weight") + bytes_of(source, mlp + "up_proj.weight")));
}

TEST_CASE("the refusal names each architecture with its obstacle", "[converter]") {
  CHECK_THAT(refusal_of([] { target_of("bloom", 2); }),
             is_wrong_usage("BloomForCausalLM", "LlamaForCausalLM", "positions: alibi",
                            "--target expanded"));
  CHECK_THAT(refusal_of([] { target_of("gpt2", 2); }),
             is_wrong_usage("GPTBigCodeForCausalLM (its loaders do not support these kv heads)"));
  CHECK_THAT(refusal_of([] { target_of("llama", 2, "phi"); }),
             is_wrong_usage("LlamaForCausalLM cannot be written as phi"));
  CHECK_THAT(refusal_of([] { target_of("llama", 2, "nonsense"); }),
             is_wrong_usage("nonsense", "PhiForCausalLM"));
}

TEST_CASE("every written config describes the model that it was written for", "[converter]") {
  for (const char* name : {"llama",
                           "llama_rope_llama3",
                           "llama_rope_yarn",
                           "llama_rope_linear",
                           "mistral",
                           "qwen2",
                           "phi",
                           "phi_qk_layernorm",
                           "phi3",
                           "phi3_longrope",
                           "phi3_longrope_short",
                           "cohere",
                           "granite",
                           "smollm3",
                           "starcoder2",
                           "nemotron",
                           "qwen3",
                           "olmo",
                           "olmo2",
                           "stablelm",
                           "stablelm_qk",
                           "gpt2",
                           "gpt_bigcode",
                           "gpt_neox",
                           "gpt_neox_sequential",
                           "gptj",
                           "bloom",
                           "mpt",
                           "falcon_rw",
                           "falcon_7b",
                           "falcon_40b",
                           "falcon_11b"}) {
    CAPTURE(name);
    const ModelSpec spec = open_model(golden(name)).spec;
    const ModelSpec again =
        describe_model(write_config(spec.architecture, spec), Checkpoint({}), name);
    CHECK(obstacles_between(spec, again) == std::vector<std::string>{});
    CHECK(again.kv_heads == spec.kv_heads);
    CHECK(again.architecture == spec.architecture);
  }
}

TEST_CASE("every difference in the computation is an obstacle", "[converter]") {
  const ModelSpec spec = open_model(golden("gpt_neox")).spec;
  const auto obstacle = [&](auto change) {
    ModelSpec other = spec;
    change(other);
    return !obstacles_between(spec, other).empty();
  };
  CHECK_FALSE(obstacle([](ModelSpec&) {}));
  CHECK_FALSE(obstacle([](ModelSpec& s) { s.layers[0].attention.packing = Packing::kSeparate; }));
  CHECK_FALSE(obstacle([](ModelSpec& s) { s.rope.interleaved = true; }));
  CHECK(obstacle([](ModelSpec& s) { s.rope.theta = 9000; }));
  CHECK(obstacle([](ModelSpec& s) { s.rope.rotary_dim += 2; }));
  CHECK(obstacle([](ModelSpec& s) { s.rope.scaling.kind = RopeScaling::Kind::kLinear; }));
  CHECK(obstacle([](ModelSpec& s) { s.norm_epsilon *= 2; }));
  CHECK(obstacle([](ModelSpec& s) { s.lm_head_normalised = true; }));
  CHECK(obstacle([](ModelSpec& s) { s.activation = Activation::kRelu; }));
  CHECK(obstacle([](ModelSpec& s) { s.parallel_residual = false; }));
  CHECK(obstacle([](ModelSpec& s) { s.attention_scale = 1.0; }));
  CHECK(obstacle([](ModelSpec& s) { s.kv_heads[1] = 4; }));
  CHECK(obstacle([](ModelSpec& s) { s.layers[1].up.bias.clear(); }));
  CHECK(obstacle([](ModelSpec& s) { s.layers[1].attention.o.bias.clear(); }));
  CHECK(obstacle([](ModelSpec& s) { s.lm_head.clear(); }));
  CHECK(obstacle([](ModelSpec& s) { s.vocab_size += 1; }));
  CHECK(obstacle([](ModelSpec& s) { s.clip_qkv = 8.0; }));
  CHECK(obstacle([](ModelSpec& s) { s.sliding_window = 16; }));
  CHECK(obstacle([](ModelSpec& s) { s.attention_softcap = 50.0; }));
  CHECK(obstacle([](ModelSpec& s) { s.logit_softcap = 30.0; }));
  CHECK(obstacle([](ModelSpec& s) {
    s.window_rope = s.rope;
    s.window_rope->theta = 9000;
  }));
  CHECK(obstacle([](ModelSpec& s) { s.embedding_scale = 2.0; }));
  CHECK(obstacle([](ModelSpec& s) { s.residual_scale = 0.5; }));
  CHECK(obstacle([](ModelSpec& s) { s.output_scale = 0.5; }));
  CHECK(obstacle([](ModelSpec& s) { s.layers[1].without_rope = true; }));
  CHECK(obstacle([](ModelSpec& s) { s.layers[0].gate = s.layers[0].up; }));
  CHECK(obstacle([](ModelSpec& s) { s.positions = PositionKind::kNone; }));
}

TEST_CASE("RoPE scalings that are the same at all lengths do not depend on the positions before",
          "[converter]") {
  ModelSpec spec = open_model(golden("gpt_neox")).spec;
  spec.rope.scaling.kind = RopeScaling::Kind::kLinear;
  spec.rope.scaling.factor = 4.0;
  ModelSpec other = spec;
  other.rope.scaling.original_positions = 64.0;  // as a config is read; GGUF files do not say
  CHECK(obstacles_between(spec, other).empty());
  other.rope.scaling.factor = 2.0;
  CHECK_FALSE(obstacles_between(spec, other).empty());
  other.rope.scaling = spec.rope.scaling = {.kind = RopeScaling::Kind::kLongRope,
                                            .original_positions = 64.0,
                                            .short_factors = {1.0, 2.0},
                                            .long_factors = {1.0, 2.0}};
  other.rope.scaling.original_positions = 128.0;
  CHECK(obstacles_between(spec, other).empty());
  spec.rope.scaling.long_factors = other.rope.scaling.long_factors = {1.0, 3.0};
  CHECK_FALSE(obstacles_between(spec, other).empty());
}

TEST_CASE("recorded slopes that differ from the formula's fit no stock architecture",
          "[converter]") {
  ModelSpec spec = open_model(golden("bloom")).spec;
  ModelSpec other = spec;
  CHECK(obstacles_between(spec, other).empty());
  spec.alibi.slopes = {alibi_slopes(spec.query_heads)};
  CHECK(obstacles_between(spec, other).empty());
  std::swap(spec.alibi.slopes[0][0], spec.alibi.slopes[0][1]);
  CHECK(obstacles_between(spec, other).size() == 1);
}

TEST_CASE("an expanded model stores each pooled head once per query head", "[converter]") {
  for (const auto& make : {tiny_llama, tiny_gpt2, tiny_bloom}) {
    const TemporaryDirectory directory;
    put_model(directory / "source", make({.dtype = DType::kF64}));
    convert(directory / "source", directory / "grouped", {.kv_heads = {3}});
    convert(directory / "source", directory / "at once", {.kv_heads = {3}, .target = "expanded"});
    convert(directory / "grouped", directory / "later", {.target = "expanded"});
    const Checkpoint at_once = open_checkpoint(directory / "at once");
    const Checkpoint later = open_checkpoint(directory / "later");
    REQUIRE(at_once.tensors().size() == later.tensors().size());
    for (const TensorInfo& tensor : at_once.tensors()) {
      CHECK((bytes_of(at_once, tensor.name) == bytes_of(later, tensor.name)));
      CHECK(tensor.shape == open_checkpoint(directory / "source").at(tensor.name).shape);
    }
    CHECK(open_model(directory / "at once").spec.kv_heads == Heads{12, 12});
    CHECK(open_model(directory / "later").spec.kv_heads == Heads{12, 12});
    const Json facts = open_model(directory / "at once").config["regroup"];
    CHECK(facts["kv_heads"] == 3);
    CHECK(facts["stored_kv_heads"] == 12);
    // Pooling the expanded model gives the same groups bit for bit.
    convert(directory / "later", directory / "again", {.kv_heads = {3}});
    const Checkpoint grouped = open_checkpoint(directory / "grouped");
    const Checkpoint again = open_checkpoint(directory / "again");
    for (const TensorInfo& tensor : grouped.tensors()) {
      CHECK((bytes_of(grouped, tensor.name) == bytes_of(again, tensor.name)));
    }
  }
}

TEST_CASE("stored kv heads must be a multiple of the kv heads", "[converter]") {
  const auto expand = [](std::int64_t stored) {
    return plan_conversion(open_model(golden("llama")),  // 12 query heads, 4 kv heads
                           {.target = "expanded", .stored_kv_heads = stored})
        .target.kv_heads;
  };
  CHECK(expand(12) == Heads{12, 12});
  CHECK(expand(4) == Heads{4, 4});
  CHECK_THAT(refusal_of([&] { expand(6); }), is_wrong_usage("4 kv heads", "as 6"));
  CHECK_THAT(refusal_of([&] { expand(2); }), is_wrong_usage("4 kv heads", "as 2"));
  CHECK_THAT(refusal_of([&] { expand(5); }), is_wrong_usage("5 kv heads", "12 query heads"));
}

TEST_CASE("a model given ALiBi gets a model_type that stock loaders refuse", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("llama"), directory / "alibi", {.positions = PositionChange::kAlibi});
  convert(golden("gpt2"), directory / "gpt2",
          {.kv_heads = {2}, .positions = PositionChange::kAlibi});
  const Model llama = open_model(directory / "alibi");
  CHECK(llama.config["model_type"] == "regroup_alibi_llama");
  CHECK(llama.config["architectures"] == Json{"RegroupAlibiLlamaForCausalLM"});
  CHECK(llama.config["regroup"]["positions"] == "alibi");
  CHECK(llama.config["regroup"]["source_positions"] == "rope");
  CHECK(llama.spec.positions == PositionKind::kAlibi);
  CHECK(alibi_slopes_per_layer(llama.spec) == std::vector(2, alibi_slopes(12)));
  const Model gpt2 = open_model(directory / "gpt2");
  CHECK(gpt2.spec.positions == PositionKind::kAlibi);
  CHECK(gpt2.spec.kv_heads == Heads{2, 2});
  CHECK(gpt2.checkpoint.find("transformer.wpe.weight") == nullptr);
  check_all_shapes(gpt2.spec, gpt2.checkpoint);
  // Converting it again keeps the name and the positions.
  convert(directory / "gpt2", directory / "mqa", {.kv_heads = {1}});
  CHECK(open_model(directory / "mqa").config["model_type"] == "regroup_alibi_gpt2");
  CHECK(open_model(directory / "mqa").spec.positions == PositionKind::kAlibi);
  CHECK_THAT(refusal_of([&] {
               convert(directory / "gpt2", directory / "x", {.positions = PositionChange::kAlibi});
             }),
             is_wrong_usage("already has ALiBi"));
  CHECK_THAT(refusal_of([&] {
               convert(golden("llama"), directory / "x",
                       {.target = "llama", .positions = PositionChange::kAlibi});
             }),
             is_wrong_usage("LlamaForCausalLM"));
}

TEST_CASE("the own architecture is not the target of a config with another's model_type",
          "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source",
            tiny_llama().set("model_type", R"("mistral")").set("sliding_window", "null"));
  convert(directory / "source", directory / "result",
          {.kv_heads = {3}, .target = "LlamaForCausalLM"});
  CHECK(open_model(directory / "result").config["model_type"] == "llama");
}

TEST_CASE("a tensor that the target lacks is refused and a buffer is dropped", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_gpt2();
  tiny.tensors.push_back({"transformer.h.0.attn.masked_bias", DType::kF32, {}, "1234"});
  put_model(directory / "buffer", tiny);
  const ConversionPlan plan =
      plan_conversion(open_model(directory / "buffer"), {.kv_heads = {1}, .target = "gpt_bigcode"});
  CHECK(plan.dropped == std::vector<std::string>{"transformer.h.0.attn.masked_bias"});
  tiny.tensors.push_back({"an.adapter", DType::kF32, {1}, "1234"});
  put_model(directory / "adapter", tiny);
  CHECK_THAT(refusal_of([&] {
               plan_conversion(open_model(directory / "adapter"),
                               {.kv_heads = {1}, .target = "gpt_bigcode"});
             }),
             is_wrong_usage("an.adapter", "GPTBigCodeForCausalLM"));
}

}  // namespace
}  // namespace regroup
