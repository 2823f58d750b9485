// How ChatGLM's configs are read.
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

TEST_CASE("ChatGLM-6B is refused with the reason", "[formats]") {
  for (const auto& [key, value] :
       {std::pair{"position_encoding_2d", "true"}, std::pair{"inner_hidden_size", "96"}}) {
    CHECK_THAT(refusal_of_model(golden_model("chatglm2").set(key, value)),
               is_bad_input("config.json", "ChatGLM-6B", "two dimensions"));
  }
}

}  // namespace
}  // namespace regroup
