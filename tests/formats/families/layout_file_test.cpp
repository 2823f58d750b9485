// Models described by a layout file: what is read, and how all faults are reported at once.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

// A layout of the tiny Llama, although regroup knows the family.
Json llama_layout() {
  return Json::parse(R"({
    "layers": "num_hidden_layers", "hidden_size": 6, "query_heads": "num_attention_heads",
    "head_dim": "head_dim", "q": "model.layers.{layer}.self_attn.q_proj.weight",
    "k": "model.layers.{layer}.self_attn.k_proj.weight",
    "v": "model.layers.{layer}.self_attn.v_proj.weight",
    "o": "model.layers.{layer}.self_attn.o_proj.weight"})");
}

ModelSpec spec_with(const TinyModel& tiny, const Json& layout) {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
  ModelSpec spec = describe_with_layout(model.config, model.checkpoint, layout, "layout.json");
  check_attention_shapes(spec, model.checkpoint);
  check_all_shapes(spec, model.checkpoint);
  return spec;
}

Error refusal_with(const Json& changes, const TinyModel& tiny = tiny_llama()) {
  Json layout = llama_layout();
  layout.merge_patch(changes);
  return refusal_of([&] { spec_with(tiny, layout); });
}

TEST_CASE("a layout file describes a model's attention only", "[formats]") {
  const ModelSpec spec = spec_with(tiny_llama(), llama_layout());
  CHECK(spec.family == "custom");
  CHECK(spec.architecture == "LlamaForCausalLM");
  CHECK(spec.not_computable == "known through a layout file only");
  CHECK(spec.attention_only());
  CHECK(spec.query_heads == 12);
  CHECK(spec.head_dim == 2);
  CHECK(spec.kv_heads == Heads{12, 12});
  CHECK(spec.layers[1].attention.v.weight == "model.layers.1.self_attn.v_proj.weight");
  CHECK(spec.positions == PositionKind::kNone);
  CHECK(expected_tensors(spec).size() == 2 * 4);
}

TEST_CASE("kv heads are read from the key that conversion writes or else from the layout",
          "[formats]") {
  const auto kv_heads = [](const Json& changes, const TinyModel& tiny) {
    Json layout = llama_layout();
    layout.merge_patch(changes);
    return spec_with(tiny, layout).kv_heads;
  };
  TinyModel grouped = tiny_llama({.kv_heads = 4});
  CHECK(kv_heads(Json::object(), grouped) == Heads{4, 4});
  CHECK(kv_heads({{"kv_heads", 6}}, grouped) == Heads{4, 4});
  grouped.set("num_key_value_heads", "null").set("groups", "4");
  CHECK(kv_heads({{"kv_heads", 4}}, grouped) == Heads{4, 4});
  CHECK(kv_heads({{"kv_heads", {4, 4}}}, grouped) == Heads{4, 4});
  CHECK(kv_heads({{"kv_heads", "groups"}}, grouped) == Heads{4, 4});
  CHECK(kv_heads({{"kv_heads_key", "groups"}}, grouped) == Heads{4, 4});
  CHECK(kv_heads({{"kv_heads", "groups"}, {"kv_heads_key", "made.kv"}}, grouped) == Heads{4, 4});
  CHECK_FALSE(spec_with(tiny_llama().set("num_key_value_heads", "null"), llama_layout())
                  .loaders_read_kv_heads);
}

TEST_CASE("layout files describe fused and input-major tensors and ALiBi", "[formats]") {
  const Json fused = Json::parse(R"({"layers": 2, "hidden_size": "n_embd", "query_heads": "n_head",
    "packing": "query_key_value", "input_major": true, "alibi": {"bias_max": 4},
    "qkv": "transformer.h.{layer}.attn.c_attn.weight",
    "qkv_bias": "transformer.h.{layer}.attn.c_attn.bias",
    "o": "transformer.h.{layer}.attn.c_proj.weight",
    "o_bias": "transformer.h.{layer}.attn.c_proj.bias"})");
  const ModelSpec spec =
      spec_with(tiny_gpt2().set("regroup", R"({"alibi": {"slopes": [1, 2]}})"), fused);
  CHECK(spec.layers[1].attention.packing == Packing::kQueryKeyValue);
  CHECK(spec.layers[1].attention.k.input_major);
  CHECK(spec.layers[1].attention.k.bias == "transformer.h.1.attn.c_attn.bias");
  CHECK(spec.positions == PositionKind::kAlibi);
  CHECK(spec.alibi.bias_max == 4.0);
  CHECK(spec.alibi.slopes == std::vector<std::vector<double>>{{1, 2}});
}

TEST_CASE("layout files describe tensors fused per group", "[formats]") {
  const Json layout = Json::parse(R"({"layers": "n_layer", "hidden_size": "hidden_size",
    "query_heads": "n_head", "packing": "per_group", "input_major": false, "alibi": {},
    "qkv": "transformer.h.{layer}.self_attention.query_key_value.weight",
    "o": "transformer.h.{layer}.self_attention.dense.weight"})");
  const ModelSpec spec = spec_with(tiny_bloom(), layout);
  CHECK(spec.layers[1].attention.packing == Packing::kPerGroup);
  CHECK_FALSE(spec.layers[1].attention.q.input_major);
  CHECK(spec.positions == PositionKind::kAlibi);
  CHECK(spec.alibi.bias_max == 8.0);
}

TEST_CASE("a model without a named architecture has the architecture custom", "[formats]") {
  for (const char* value : {"null", "\"LlamaForCausalLM\"", "[]", "[7]"}) {
    CAPTURE(value);
    CHECK(spec_with(tiny_llama().set("architectures", value), llama_layout()).architecture ==
          "custom");
  }
}

TEST_CASE("all faults of a layout file are reported together", "[formats]") {
  CHECK_THAT(refusal_with(Json::parse(R"({"quary_heads": 3, "query_heads": "heads", "head_dim": "",
                                          "layers": -1, "k": 7, "o": null, "input_major": 1})")),
             is_bad_input("layout.json", "unknown key quary_heads",
                          "query_heads: config.json has no \"heads\"", "layers is -1", "k is 7",
                          "o is missing", "input_major is 1"));
  // Without a number of heads, head_dim cannot be checked.
  CHECK(refusal_with({{"query_heads", 0}, {"head_dim", nullptr}}).what() ==
        std::string("layout.json: query_heads is 0, a whole number from 1 to 65536 is needed"));
  Json many = Json::object();
  for (int i = 0; i < 11; ++i) {
    many["key_" + std::to_string(10 + i)] = i;
  }
  const std::string message = refusal_with(many).what();
  CHECK(message.ends_with("unknown key key_17; and 3 more"));
}

TEST_CASE("a layout file that does not match the checkpoint is refused", "[formats]") {
  CHECK_THAT(refusal_with({{"v", "model.layers.{layer}.value"}}),
             is_bad_input("layout.json", "no tensor model.layers.0.value",
                          "no tensor model.layers.1.value"));
  CHECK_THAT(refusal_with({{"k", "model.layers.0.self_attn.k_proj.weight"}}),
             is_bad_input("k_proj", "{layer}"));
  CHECK_THAT(refusal_with({{"layers", 100}}), is_bad_input("layers is 100", "tensors"));
  CHECK_THAT(refusal_with({{"layers", 3}}), is_bad_input("no tensor model.layers.2.self_attn"));
  CHECK_THAT(refusal_with({{"query_heads", 7}, {"head_dim", nullptr}}),
             is_bad_input("head_dim is missing", "7 heads"));
  CHECK_THAT(refusal_with({{"query_heads", 65537}}), is_bad_input("query_heads is 65537", "65536"));
  CHECK_THAT(refusal_with({{"hidden_size", 12}}),
             is_bad_input("q_proj.weight is [24, 6], the config says [24, 12]"));
  CHECK_THAT(refusal_with({{"packing", "zip\x1b"}}), is_bad_input("packing is zip", "per_group"));
  for (const char* alibi : {R"({"bias_max": "8"})", R"({"bias_max": 8, "slope": 1})",
                            R"({"slope": 1})", "8", "true", "[]"}) {
    CAPTURE(alibi);
    CHECK_THAT(refusal_with({{"alibi", Json::parse(alibi)}}),
               is_bad_input("layout.json", "alibi is", "at most the number bias_max"));
  }
  CHECK_THAT(refusal_with({{"layers", nullptr}}), is_bad_input("layout.json", "layers is missing"));
  CHECK_THAT(refusal_with({{"layers", "num_hidden_layers.deep"}}),
             is_bad_input("config.json has no \"num_hidden_layers.deep\""));
  TinyModel packed = tiny_llama().set("quantization_config", "{}");
  packed.tensors.push_back(varied_tensor("model.layers.0.mlp.x.qweight", DType::kF32, {4}));
  CHECK_THAT(refusal_with(Json::object(), packed), is_bad_input("x.qweight", "GPTQ"));
}

TEST_CASE("a layout that gives a tensor two roles is refused", "[formats]") {
  const std::string of_layer = "model.layers.{layer}.self_attn.";
  for (const auto& [key, name] :
       {std::pair{"k", "q_proj.weight"}, std::pair{"v", "k_proj.weight"},
        std::pair{"o", "v_proj.weight"}, std::pair{"o_bias", "q_proj.weight"}}) {
    CAPTURE(key);
    CHECK_THAT(refusal_with({{key, of_layer + name}}),
               is_bad_input("layout.json", name, "layer 0", "packing"));
  }
  // k's name of layer 0 equals q's name of layer 10.
  CHECK_THAT(refusal_with({{"k", "model.layers.1{layer}.self_attn.q_proj.weight"}},
                          tiny_llama({.layers = 11})),
             is_bad_input("tensor model.layers.10.self_attn.q_proj.weight is k of layer 0 and q of "
                          "layer 10"));
}

TEST_CASE("layout files describe norms of queries and keys", "[formats]") {
  const std::string of_layer = "model.layers.{layer}.self_attn.";
  Json layout = llama_layout();
  layout["q_norm"] = of_layer + "q_norm.weight";
  layout["k_norm"] = of_layer + "k_norm.weight";
  const ModelSpec whole = spec_with(golden_model("olmo2"), [&] {
    Json of_olmo = layout;
    of_olmo.erase("head_dim");
    of_olmo["hidden_size"] = "hidden_size";
    return of_olmo;
  }());
  CHECK((whole.qk_norm == QkNorm::kProjection));
  layout["hidden_size"] = "hidden_size";
  CHECK((spec_with(golden_model("qwen3"), layout).qk_norm == QkNorm::kSharedAcrossHeads));
  CHECK_THAT(refusal_with({{"k_norm", of_layer + "k_norm.weight"}}),
             is_bad_input("no tensor model.layers.0.self_attn.k_norm.weight"));
  CHECK_THAT(refusal_with({{"k_norm_bias", of_layer + "k_norm.bias"}}),
             is_bad_input("k_norm is missing"));
  CHECK_THAT(refusal_with({{"q_norm", "norm"}}), is_bad_input("{layer}"));
}

TEST_CASE("a dotted config key has at most 16 parts and 255 bytes", "[formats]") {
  std::string deep = "a";
  for (int i = 1; i < 16; ++i) {
    deep += ".a";
  }
  Json layout = llama_layout();
  layout["kv_heads_key"] = deep;
  CHECK(spec_with(tiny_llama(), layout).kv_heads_key.size() == 16);
  for (const std::string& key :
       {deep + ".a", std::string(10'000, '.'), std::string("a..b"), std::string(".a"),
        std::string("a."), std::string(), std::string(256, 'a')}) {
    CAPTURE(key);
    for (const char* member : {"kv_heads_key", "kv_heads", "layers", "hidden_size"}) {
      CHECK_THAT(refusal_with({{member, key}}),
                 is_bad_input("layout.json", fmt::format("{} names the config key", member)));
    }
  }
}

TEST_CASE("impossible kv heads are refused", "[formats]") {
  for (const char* value : {"5", "[4]", "[4, 5]", "0", "4.0", "{}"}) {
    CAPTURE(value);
    CHECK_THAT(refusal_with(Json::object(), tiny_llama().set("num_key_value_heads", value)),
               is_bad_input("kv_heads"));
  }
}

TEST_CASE("a model opens through a layout file if that is a JSON object", "[formats]") {
  const TemporaryDirectory directory;
  const auto model = put_model(directory / "model", tiny_llama().set("model_type", "\"homemade\""));
  const auto layout = directory / "layout.json";
  put_file(layout, llama_layout().dump());
  CHECK(open_model(model, {.layout = layout}).spec.family == "custom");
  CHECK_THAT(refusal_of([&] { open_model(model); }), is_bad_input("homemade", "--layout FILE"));
  put_file(layout, "[]");
  CHECK_THAT(refusal_of([&] { open_model(model, {.layout = layout}); }),
             is_bad_input("layout.json", "object"));
  CHECK(refusal_of([&] { open_model(model, {.layout = directory / "none.json"}); }).kind() !=
        ErrorKind::kDifference);
}

}  // namespace
}  // namespace regroup
