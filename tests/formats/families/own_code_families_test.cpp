// Baichuan, InternLM and Qwen: what their configs mean, and what is refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/gguf_model.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

Error refusal_of_spec(const TinyModel& model) {
  return refusal_of([&] { spec_of(model); });
}

TEST_CASE("Baichuan has RoPE if its config names positions, else ALiBi", "[formats]") {
  TinyModel model = golden_model("baichuan_7b");
  CHECK(spec_of(model).positions == PositionKind::kRope);
  CHECK(spec_of(model).layers[1].attention.packing == Packing::kQueryKeyValue);
  CHECK(spec_of(model).layers[1].attention.k.weight == "model.layers.1.self_attn.W_pack.weight");
  model.set("max_position_embeddings", "null").set("model_max_length", "64");
  CHECK(spec_of(model).positions == PositionKind::kAlibi);
  CHECK(spec_of(model).max_positions == 64);
  model.set("hidden_size", "4096").set("num_attention_heads", "32");  // the 7B's
  CHECK(spec_of(model).positions == PositionKind::kRope);
  model.set("hidden_size", "4160").set("max_position_embeddings", "64");
  CHECK(spec_of(model).positions == PositionKind::kRope);
  model.set("hidden_size", "5120").set("num_attention_heads", "40");  // the 13B's
  CHECK(spec_of(model).positions == PositionKind::kAlibi);
}

TEST_CASE("a Baichuan with ALiBi and stored frequencies of RoPE is refused", "[formats]") {
  TinyModel model = golden_model("baichuan2_13b");
  CHECK(spec_of(model).positions == PositionKind::kAlibi);
  BuiltTensor frequencies = model.tensor("model.norm.weight");
  frequencies.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  model.tensors.push_back(frequencies);
  CHECK_THAT(refusal_of_spec(model), is_bad_input("inv_freq", "max_position_embeddings"));
}

TEST_CASE("the output projection of Baichuan 2 is normalised", "[formats]") {
  CHECK_FALSE(spec_of(golden_model("baichuan_7b")).lm_head_normalised);
  CHECK(spec_of(golden_model("baichuan2_7b")).lm_head_normalised);
  TinyModel model = golden_model("baichuan_7b");
  CHECK(spec_of(model.set("vocab_size", "125696")).lm_head_normalised);
}

TEST_CASE("InternLM's rotary has a base, a type and a factor", "[formats]") {
  TinyModel model = golden_model("internlm");
  CHECK(spec_of(model).rope.theta == 300.0);
  CHECK(spec_of(model).rope.scaling.kind == RopeScaling::Kind::kDynamic);
  CHECK(spec_of(model).rope.scaling.factor == 2.0);
  CHECK(spec_of(model).rope.scaling.original_positions == 8.0);
  CHECK(spec_of(model).layers[0].attention.o.bias == "model.layers.0.self_attn.o_proj.bias");
  model.set("rotary", R"({"type": "origin", "base": 500})");
  CHECK(spec_of(model).rope.theta == 500.0);
  CHECK(spec_of(model).rope.scaling.kind == RopeScaling::Kind::kNone);
  model.set("rotary", R"({"type": "linear"})");
  CHECK_THAT(refusal_of_spec(model), is_bad_input("rotary.type", "linear", "origin or dynamic"));
  model.set("rotary", "null").set("rope_scaling", R"({"type": "dynamic", "factor": 2.0})");
  CHECK(spec_of(model).rope.theta == 10000.0);
  CHECK(spec_of(model).not_computable.starts_with("rope_scaling"));
}

TEST_CASE("InternLM2 stores the heads of each group together", "[formats]") {
  const ModelSpec spec = spec_of(golden_model("internlm2"));
  CHECK(spec.kv_heads == std::vector<std::int64_t>{6, 6});
  CHECK(spec.layers[1].attention.packing == Packing::kPerGroup);
  CHECK(spec.layers[1].gate.weight == "model.layers.1.feed_forward.w1.weight");
  CHECK(spec.layers[1].up.weight == "model.layers.1.feed_forward.w3.weight");
  CHECK(spec.lm_head == "output.weight");
}

TEST_CASE("Qwen is computed up to seq_length tokens if longer ones change its attention",
          "[formats]") {
  TinyModel model = golden_model("qwen");
  const ModelSpec spec = spec_of(model);
  CHECK(spec.intermediate_size == 20);
  CHECK(spec.layers[0].gate.weight == "transformer.h.0.mlp.w2.weight");
  CHECK(spec.layers[0].attention.v.bias == "transformer.h.0.attn.c_attn.bias");
  CHECK(spec.limited_to_positions);
  CHECK(spec.max_positions == 16);
  model.set("use_dynamic_ntk", "false");
  CHECK(spec_of(model).limited_to_positions);
  model.set("use_logn_attn", "false");
  CHECK_FALSE(spec_of(model).limited_to_positions);
  CHECK(spec_of(model).max_positions == 32);
}

TEST_CASE("a Qwen with sizes that cannot hold is refused", "[formats]") {
  CHECK_THAT(refusal_of_spec(golden_model("qwen").set("intermediate_size", "41")),
             is_bad_input("intermediate_size is 41", "even"));
  CHECK_THAT(refusal_of_spec(golden_model("qwen").set("kv_channels", "5")),
             is_bad_input("6 heads of kv_channels 5", "24"));
}

// A Baichuan of `layers` equal layers.
ModelSpec baichuan_of(std::size_t layers) {
  ModelSpec spec = spec_of(golden_model("baichuan2_13b"));
  spec.layers.resize(layers, spec.layers.front());
  spec.kv_heads.assign(layers, 3);
  return spec;
}

TEST_CASE("llama.cpp computes Baichuan's ALiBi for 40 layers only", "[formats]") {
  const ModelSpec spec = baichuan_of(40);
  const GgufMetadata metadata = gguf_metadata_for(spec);
  CHECK(*metadata.text("general.architecture") == "baichuan");
  CHECK(metadata.count("baichuan.attention.head_count_kv") == 3);
  CHECK(metadata.count("baichuan.context_length") == 16);
  const ModelSpec again = describe_gguf(metadata, gguf_parts_for(spec));
  CHECK(again.positions == PositionKind::kAlibi);
  CHECK_FALSE(again.lm_head_normalised);
  CHECK(again.layers[39].attention.packing == Packing::kSeparate);
  CHECK_THAT(refusal_of([] { gguf_metadata_for(baichuan_of(39)); }),
             is_wrong_usage("baichuan: 39 layers", "40 (ALiBi)"));
}

TEST_CASE("a GGUF file of Baichuan has RoPE with 32 layers and is refused with others",
          "[formats]") {
  GgufMetadata metadata = gguf_metadata_for(baichuan_of(40));
  const GgufParts parts = gguf_parts_for(baichuan_of(40));
  metadata.set_u32("baichuan.block_count", 32);
  const ModelSpec rope = describe_gguf(metadata, parts);
  CHECK(rope.positions == PositionKind::kRope);
  CHECK(rope.rope.interleaved);
  metadata.set_u32("baichuan.block_count", 33);
  CHECK_THAT(refusal_of([&] { describe_gguf(metadata, parts); }),
             is_bad_input("block_count is 33", "40 and 32"));
}

}  // namespace
}  // namespace regroup
