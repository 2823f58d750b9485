// How ChatGLM's configs are read, and PhiMoE's.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "tests/file_tree.h"
#include "tests/formats/families/described_model.h"
#include "tests/refusal.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

ModelSpec spec_of_tiny(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  return spec_of(open_model_directory(put_model(directory.path(), tiny)));
}

TEST_CASE("ChatGLM2 has grouped heads and RoPE on pairs of the first half of each head",
          "[formats]") {
  const ModelDirectory model = open_model_directory(golden("chatglm2"));
  const ModelSpec spec = spec_of(model);
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() == model.checkpoint.tensors().size());
  CHECK(spec.head_dim == 8);  // 6 · 8 is not the hidden size
  CHECK(spec.rope.rotary_dim == 4);
  CHECK(spec.rope.interleaved);
  CHECK(spec.kv_heads_key == std::vector<std::string>{"multi_query_group_num"});
  CHECK(spec.loaders_read_kv_heads);
  CHECK((spec.layers[0].attention.packing == Packing::kQueryKeyValue));
  CHECK_FALSE(spec.layers[0].attention.q.bias.empty());
  CHECK(spec.layers[0].attention.o.bias.empty());
  CHECK(spec.not_computable.empty());
}

TEST_CASE("a ChatGLM with other settings is not computed or refused", "[formats]") {
  const auto reason = [](const char* key, const char* value) {
    return spec_of_tiny(golden_model("chatglm2").set(key, value)).not_computable;
  };
  CHECK(reason("rope_ratio", "50").starts_with("rope_ratio"));
  CHECK(reason("rope_ratio", "1").empty());
  CHECK(reason("rmsnorm", "false") == "rmsnorm = false");
  CHECK(reason("post_layer_norm", "false") == "post_layer_norm = false");
  CHECK(reason("pre_seq_len", "8") == "pre_seq_len");
  CHECK_THAT(refusal_of_model(golden_model("chatglm2").set("multi_query_attention", "false")),
             is_bad_input("multi_query_attention"));
}

TEST_CASE("of ChatGLM-6B only the attention is described", "[formats]") {
  TinyModel tiny;
  tiny.config = R"({"model_type": "chatglm", "architectures": ["ChatGLMModel"],
    "hidden_size": 24, "num_attention_heads": 6, "num_layers": 2, "vocab_size": 40,
    "inner_hidden_size": 96, "position_encoding_2d": true})";
  for (int layer = 0; layer < 2; ++layer) {
    const std::string name = fmt::format("transformer.layers.{}.attention.", layer);
    for (const auto& [part, rows] : {std::pair{"query_key_value", 72}, std::pair{"dense", 24}}) {
      const std::string map = name + part;
      tiny.tensors.push_back(varied_tensor(map + ".weight", DType::kF32, {rows, 24}));
      tiny.tensors.push_back(varied_tensor(map + ".bias", DType::kF32, {rows}));
    }
  }
  const ModelSpec spec = spec_of_tiny(tiny);
  CHECK(spec.attention_only());
  CHECK((spec.layers[1].attention.packing == Packing::kPerGroup));
  CHECK(spec.kv_heads == std::vector<std::int64_t>{6, 6});
  CHECK(spec.not_computable == "ChatGLM-6B's two-dimensional positions");
}

TEST_CASE("PhiMoE is described and not computed", "[formats]") {
  const ModelDirectory model = open_model_directory(golden("phimoe"));
  const ModelSpec spec = spec_of(model);
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() == model.checkpoint.tensors().size());
  CHECK(spec.loaders_read_kv_heads);
  CHECK((spec.norm == NormKind::kLayerNorm));
  CHECK(spec.routing.experts == 5);
  CHECK(spec.not_computable == "PhiMoE's router, SparseMixer");
}

}  // namespace
}  // namespace regroup
