// How each family's config and tensors are read.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/families/unknown_architecture.h"
#include "formats/model/model_directory.h"
#include "formats/spec/alibi.h"
#include "tests/file_tree.h"
#include "tests/formats/families/described_model.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

ModelSpec golden_spec(std::string_view name) {
  const ModelDirectory model = open_model_directory(golden(name));
  ModelSpec spec = spec_of(model);
  check_all_shapes(spec, model.checkpoint);
  // The family knows every tensor except GPT-2's masks.
  CHECK(expected_tensors(spec).size() + (name == "gpt2_base" ? 2 : 0) ==
        model.checkpoint.tensors().size());
  return spec;
}

TEST_CASE("Llama's config is read with the keys of transformers 5", "[formats]") {
  const ModelSpec spec = golden_spec("llama");
  CHECK(spec.family == "llama");
  CHECK(spec.architecture == "LlamaForCausalLM");
  CHECK(spec.hidden_size == 36);
  CHECK(spec.query_heads == 12);
  CHECK(spec.head_dim == 8);  // 12 · 8 is not the hidden size
  CHECK(spec.kv_heads == std::vector<std::int64_t>{4, 4});
  CHECK(spec.positions == PositionKind::kRope);
  CHECK(spec.rope.theta == 500.0);
  CHECK(spec.rope.rotary_dim == 8);
  CHECK(spec.norm == NormKind::kRmsNorm);
  CHECK(spec.norm_epsilon == 0.02);
  CHECK(spec.lm_head == "lm_head.weight");
  CHECK(spec.loaders_read_kv_heads);
  CHECK(spec.not_computable.empty());
}

TEST_CASE("Llama's config is read with older keys and biases and tied embeddings", "[formats]") {
  const ModelSpec spec = golden_spec("llama_mha");
  CHECK(spec.head_dim == 6);
  CHECK(spec.rope.theta == 300.0);
  CHECK(spec.lm_head.empty());
  CHECK(spec.layers[1].attention.k.bias == "model.layers.1.self_attn.k_proj.bias");
  CHECK(spec.layers[1].attention.o.bias == "model.layers.1.self_attn.o_proj.bias");
  CHECK(spec.layers[1].gate.bias == "model.layers.1.mlp.gate_proj.bias");
}

TEST_CASE("a Llama without num_key_value_heads is multi-head", "[formats]") {
  CHECK(golden_spec("llama_fp16").kv_heads == std::vector<std::int64_t>{12, 12});
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(
      put_model(directory.path(), tiny_llama().set("num_key_value_heads", "null")));
  CHECK(spec_of(model).kv_heads == std::vector<std::int64_t>{12, 12});
}

TEST_CASE("each family reads RoPE's settings under the keys that its config class has",
          "[formats]") {
  TinyModel neox = golden_model("gpt_neox");
  neox.set("rope_theta", "300").set("partial_rotary_factor", "0.4");
  CHECK(spec_of(neox).rope == spec_of(golden_model("gpt_neox")).rope);
  neox.set("rotary_emb_base", "null");
  CHECK(spec_of(neox).rope.theta == 10000.0);
  TinyModel persimmon = golden_model("persimmon");
  persimmon.set("rope_parameters", "null").set("rotary_emb_base", "300").set("rotary_pct", "1.0");
  CHECK(spec_of(persimmon).rope.theta == 10000.0);
  CHECK(spec_of(persimmon).rope.rotary_dim == 4);  // half of a head
}

TEST_CASE("Qwen2 has biases on q and k and v but not on o", "[formats]") {
  const ModelSpec spec = golden_spec("qwen2");
  CHECK(spec.family == "llama");
  CHECK(spec.layers[0].attention.q.bias == "model.layers.0.self_attn.q_proj.bias");
  CHECK(spec.layers[0].attention.o.bias.empty());
  CHECK(spec.kv_heads == std::vector<std::int64_t>{2, 2});
}

TEST_CASE("Mistral has a sliding window", "[formats]") {
  CHECK(golden_spec("mistral").sliding_window == 5);
}

TEST_CASE("GPT-2 has fused input-major tensors and learned positions with or without a prefix",
          "[formats]") {
  for (const auto& [name, prefix] :
       {std::pair{"gpt2", "transformer."}, std::pair{"gpt2_base", ""}}) {
    CAPTURE(name);
    const ModelSpec spec = golden_spec(name);
    CHECK(spec.family == "gpt2");
    const AttentionLayout& attention = spec.layers[1].attention;
    CHECK(attention.packing == Packing::kQueryKeyValue);
    CHECK(attention.k.weight == std::string(prefix) + "h.1.attn.c_attn.weight");
    CHECK(attention.k.input_major);
    CHECK(attention.v.bias == std::string(prefix) + "h.1.attn.c_attn.bias");
    CHECK(spec.positions == PositionKind::kLearned);
    CHECK(spec.norm_epsilon == 0.05);
    CHECK(spec.intermediate_size == 4 * 36);
    CHECK(spec.lm_head.empty());
    CHECK_FALSE(spec.loaders_read_kv_heads);
  }
}

TEST_CASE("BLOOM has fused heads and ALiBi under both spellings of its config", "[formats]") {
  for (const auto& [name, prefix] :
       {std::pair{"bloom", "transformer."}, std::pair{"bloom_base", ""}}) {
    CAPTURE(name);
    const ModelSpec spec = golden_spec(name);
    CHECK(spec.family == "bloom");
    CHECK(spec.query_heads == 6);
    CHECK(spec.head_dim == 4);
    const AttentionLayout& attention = spec.layers[2].attention;
    CHECK(attention.packing == Packing::kPerGroup);
    CHECK(attention.v.weight == std::string(prefix) + "h.2.self_attention.query_key_value.weight");
    CHECK_FALSE(attention.v.input_major);
    CHECK(spec.positions == PositionKind::kAlibi);
    CHECK(spec.embedding_norm.weight == std::string(prefix) + "word_embeddings_layernorm.weight");
    CHECK_FALSE(spec.residual_after_norm);
  }
  CHECK(golden_spec("bloom_12").residual_after_norm);
}

TEST_CASE("the sizes in each MHA fixture's config match its tensors", "[formats]") {
  for (const char* name :
       {"llama_bf16", "llama_sharded", "equal_heads", "equal_heads_gpt2", "equal_heads_bloom",
        "baichuan_7b", "baichuan2_7b", "baichuan2_13b", "internlm", "qwen", "codegen"}) {
    CAPTURE(name);
    golden_spec(name);
  }
}

TEST_CASE("experts are described in the layers that have them, in both stored forms", "[formats]") {
  const ModelSpec olmoe = golden_spec("olmoe");
  CHECK(olmoe.clip_qkv == 0.8);
  CHECK(olmoe.routing.experts == 6);
  CHECK(olmoe.routing.per_token == 3);
  CHECK_FALSE(olmoe.routing.normalised);
  CHECK(olmoe.layers[1].experts.down[5] == "model.layers.1.mlp.experts.5.down_proj.weight");
  CHECK(olmoe.idle_expert_weights() == 2 * 3 * 3 * 12 * 24);
  const ModelSpec qwen = golden_spec("qwen2_moe");
  CHECK(qwen.layers[0].intermediate_size == 14);
  CHECK(qwen.layers[0].shared_gate.present());
  CHECK_FALSE(qwen.layers[1].experts.present());
  CHECK(qwen.layers[1].up.weight == "model.layers.1.mlp.up_proj.weight");
  CHECK_FALSE(golden_spec("qwen3_moe").layers[0].experts.present());  // decoder_sparse_step 2
  const ModelSpec stacked = golden_spec("mixtral_stacked");
  CHECK(stacked.layers[1].experts.stacked);
  CHECK(stacked.layers[1].experts.gate ==
        std::vector<std::string>{"model.layers.1.mlp.experts.gate_up_proj"});
  const ModelSpec granite =
      describe_model(parse_json_object(golden_model("granitemoe").config, "c"), Checkpoint({}),
                     "c");  // no weights yet
  CHECK(granite.layers[0].experts.gate.front() ==
        "model.layers.0.block_sparse_moe.input_linear.weight");
  const ModelSpec deepseek = golden_spec("deepseek");
  CHECK_FALSE(deepseek.layers[0].experts.present());
  CHECK(deepseek.layers[2].intermediate_size == 16);  // two shared experts
  CHECK(deepseek.routing.balance == ExpertRouting::Balance::kEachSequence);
}

TEST_CASE("the architecture decides if model_type is missing", "[formats]") {
  const TemporaryDirectory directory;
  const ModelDirectory model =
      open_model_directory(put_model(directory.path(), tiny_bloom().set("model_type", "null")));
  CHECK(spec_of(model).family == "bloom");
}

TEST_CASE("a Mistral without num_key_value_heads has 8 kv heads", "[formats]") {
  TinyModel model = tiny_llama().set("model_type", "\"mistral\"");
  Json config = Json::parse(model.config);
  config.erase("num_key_value_heads");
  model.config = config.dump();
  CHECK_THAT(refusal_of_model(model),
             is_bad_input("config.json", "num_key_value_heads is 8", "12 query heads"));
}

TEST_CASE("kv heads may be listed per layer", "[formats]") {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(
      put_model(directory.path(), tiny_llama().set("num_key_value_heads", "[12, 4]")));
  CHECK(spec_of(model).kv_heads == std::vector<std::int64_t>{12, 4});
}

TEST_CASE("slopes that an earlier conversion recorded are read back", "[formats]") {
  const TemporaryDirectory directory;
  const auto spec_with = [&](std::string_view block) {
    return spec_of(open_model_directory(put_model(
        directory.path(), tiny_bloom({.query_heads = 2, .kv_heads = 2}).set("regroup", block))));
  };
  CHECK(spec_with(R"({"alibi": {"bias_max": 4.0, "slopes": [0.5, 0.25]}})").alibi.slopes ==
        std::vector<std::vector<double>>{{0.5, 0.25}});
  // Loaders use the family's bias_max, so slopes of another one become explicit.
  const ModelSpec other = spec_with(R"({"alibi": {"bias_max": 4.0}})");
  CHECK(other.alibi.bias_max == 8.0);
  CHECK(other.alibi.slopes == std::vector(1, alibi_slopes(2, 4.0)));
  CHECK(spec_with(R"({"alibi": {"slopes": [[1, 2], [3, 4]]}})").alibi.slopes.size() == 2);
  for (const std::string_view slopes : {"3", "\"a\"", "{}", "[\"a\"]", "[[1], 2]", "[null]"}) {
    CAPTURE(slopes);
    CHECK_THAT(
        refusal_of([&] { spec_with(fmt::format(R"({{"alibi": {{"slopes": {}}}}})", slopes)); }),
        is_bad_input("config.json", "slopes"));
  }
}

TEST_CASE("a Qwen2 has a window in none, all or some of its layers", "[formats]") {
  const auto spec_with = [](const char* first, const char* types) {
    const TemporaryDirectory directory;
    TinyModel model = golden_model("qwen2").set("use_sliding_window", "true");
    model.set("sliding_window", "32").set("max_window_layers", first).set("layer_types", types);
    return spec_of(open_model_directory(put_model(directory.path(), model)));
  };
  const ModelSpec all = spec_with("0", "null");
  const auto layers = static_cast<std::size_t>(all.layer_count());
  CHECK(all.sliding_window == 32);
  CHECK(all.not_computable.empty());
  const ModelSpec none = spec_with("28", "null");
  CHECK_FALSE(none.sliding_window);
  CHECK(none.not_computable.empty());
  const ModelSpec some = spec_with("1", "null");
  CHECK_FALSE(some.window_of(some.layers[0]));
  CHECK(some.window_of(some.layers[1]) == 32);
  Json types(std::vector<std::string>(layers, "sliding_attention"));
  CHECK(spec_with("28", types.dump().c_str()).sliding_window == 32);
  types[1] = "full_attention";
  const ModelSpec listed = spec_with("0", types.dump().c_str());
  CHECK(listed.window_of(listed.layers[0]) == 32);
  CHECK_FALSE(listed.window_of(listed.layers[1]));
}

TEST_CASE("CodeGen's fused projection has four parts of queries, values and keys", "[formats]") {
  const ModelSpec spec = golden_spec("codegen");
  CHECK(spec.layers[1].attention.packing == Packing::kPartitioned);
  CHECK(spec.layers[1].attention.k.weight == "transformer.h.1.attn.qkv_proj.weight");
  CHECK(spec.rope.interleaved);
  CHECK_THAT(refusal_of_model(golden_model("codegen").set("n_head", "6")),
             is_bad_input("n_head is 6", "multiple of 4"));
}

}  // namespace
}  // namespace regroup
