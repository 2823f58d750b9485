// DeciLM: layers that differ in kv heads and MLP width, or lack attention or MLP.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/ranges.h>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "formats/spec/config_writers.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

constexpr const char* kWhole =
    R"({"attention": {"n_heads_in_group": 1}, "ffn": {"ffn_mult": 16.0}})";

// Two layers of 12 heads, hidden size 6, with the given blocks and no tensors for the MLPs' widths.
TinyModel tiny_nas(const std::vector<std::string>& blocks) {
  TinyModel model = tiny_llama();
  return model.set("model_type", "\"nemotron-nas\"")
      .set("architectures", "[\"DeciLMForCausalLM\"]")
      .set("intermediate_size", "null")
      .set("num_key_value_heads", "null")
      .set("block_configs", fmt::format("[{}]", fmt::join(blocks, ", ")));
}

TinyModel tiny_deci() {
  TinyModel model = tiny_llama({.kv_heads = 4});
  return model.set("model_type", "\"deci\"").set("num_key_value_heads_per_layer", "[4, 4]");
}

std::string with_kv_heads(const TinyModel& tiny, const Heads& kv_heads) {
  return config_with_kv_heads(tiny.config, spec_of(tiny), kv_heads);
}

TEST_CASE("each layer of Nemotron-NAS may have its own kv heads and MLP or none", "[formats]") {
  const Model model = open_model(golden("nemotron_nas"));
  const ModelSpec& spec = model.spec;
  CHECK(spec.family == "decilm");
  CHECK(spec.architecture == "DeciLMForCausalLM");
  CHECK(spec.head_dim == 4);
  CHECK(spec.kv_heads == Heads{6, 0, 2, 0, 3});
  CHECK(spec.layers[0].intermediate_size == 256);
  CHECK(spec.layers[1].intermediate_size == 512);
  CHECK(spec.intermediate_size == 512);
  CHECK_FALSE(spec.layers[1].attention.present());
  CHECK_FALSE(spec.layers[1].attention_norm.present());
  CHECK_FALSE(spec.layers[2].up.present());
  CHECK_FALSE(spec.layers[2].mlp_norm.present());
  CHECK(spec.not_computable.empty());
  check_all_shapes(spec, model.checkpoint);
  CHECK(expected_tensors(spec).size() == model.checkpoint.tensors().size());
  CHECK(kv_heads_from_shapes(spec, model.checkpoint) == spec.kv_heads);
}

TEST_CASE("a summary counts no keys and values in layers without attention", "[formats]") {
  const std::filesystem::path path = golden("nemotron_nas");
  const Model model = open_model(path);
  const ModelSummary summary = summarize_model(path, model.checkpoint);
  CHECK(summary.kv_heads == Heads{6, 0, 2, 0, 3});
  CHECK(summary.attention == "mixed");
  CHECK(summary.kv_bytes_per_token == 2 * (6 + 2 + 3) * 4 * 2);
  CHECK(summary.disagreements.empty());
}

TEST_CASE("a model stays mha when some of its layers have no attention", "[formats]") {
  TinyModel tiny = tiny_nas({R"({"attention": {"no_op": true}, "ffn": {"no_op": true}})", kWhole});
  const TemporaryDirectory directory;
  const Model model = open_model(put_model(directory.path(), tiny));
  CHECK(summarize_model(directory.path(), model.checkpoint).attention == "mha");
}

TEST_CASE("a layer with a linear map in place of attention or MLP is read but not computed",
          "[formats]") {
  const ModelSpec attention = spec_of(tiny_nas(
      {kWhole, R"({"attention": {"replace_with_linear": true}, "ffn": {"ffn_mult": 16.0}})"}));
  CHECK(attention.not_computable == "a linear map for attention in layer 1");
  CHECK(attention.kv_heads == Heads{12, 0});
  CHECK(attention.layers[1].up.present());
  const ModelSpec mlp = spec_of(tiny_nas(
      {R"({"attention": {"n_heads_in_group": 1}, "ffn": {"replace_with_linear": true}})", kWhole}));
  CHECK(mlp.not_computable == "a linear map for the MLP in layer 0");
  CHECK_FALSE(mlp.layers[0].up.present());
  CHECK(mlp.kv_heads == Heads{12, 12});
}

TEST_CASE("a sliding window in some layers is read but not computed", "[formats]") {
  CHECK(spec_of(tiny_nas({kWhole, R"({"attention": {"n_heads_in_group": 1, "window_length": 8},
                                      "ffn": {"ffn_mult": 16.0}})"}))
            .not_computable == "window_length in layer 1");
}

TEST_CASE("impossible blocks are refused with their layer", "[formats]") {
  const auto refusal = [](const std::string& block) {
    return refusal_of([&] { spec_of(tiny_nas({kWhole, block})); });
  };
  CHECK_THAT(refusal("7"), is_bad_input("config.json", "block_configs[1]", "no object"));
  CHECK_THAT(refusal(R"({"attention": [], "ffn": {"ffn_mult": 1}})"),
             is_bad_input("block_configs[1]", "attention", "object"));
  CHECK_THAT(refusal(R"({"ffn": {"ffn_mult": 16.0}})"),
             is_bad_input("block_configs[1]", "n_heads_in_group is missing"));
  CHECK_THAT(refusal(R"({"attention": {"n_heads_in_group": 5}, "ffn": {"ffn_mult": 16.0}})"),
             is_bad_input("block_configs[1]", "n_heads_in_group is 5", "12 query heads"));
  CHECK_THAT(refusal(R"({"attention": {"no_op": 1}, "ffn": {"ffn_mult": 16.0}})"),
             is_bad_input("block_configs[1]", "no_op", "true or false"));
  for (const char* factor : {"0", "-2", "1e-9", "1e300", "null"}) {
    CAPTURE(factor);
    CHECK_THAT(
        refusal(fmt::format(
            R"({{"attention": {{"n_heads_in_group": 1}}, "ffn": {{"ffn_mult": {}}}}})", factor)),
        is_bad_input("block_configs[1]", "ffn_mult"));
  }
  CHECK_THAT(refusal_of([&] { spec_of(tiny_nas({kWhole})); }),
             is_bad_input("block_configs", "2 layers"));
  const char* none = R"({"attention": {"no_op": true}, "ffn": {"ffn_mult": 16.0}})";
  CHECK_THAT(refusal_of([&] { spec_of(tiny_nas({none, none})); }),
             is_bad_input("block_configs", "no layer with attention"));
}

TEST_CASE("DeciLM-7B lists the kv heads of its layers", "[formats]") {
  const ModelSpec spec = spec_of(tiny_deci());
  CHECK(spec.family == "decilm");
  CHECK(spec.kv_heads == Heads{4, 4});
  CHECK(spec.loaders_let_layers_differ);
  CHECK(spec_of(tiny_deci().set("num_key_value_heads_per_layer", "[4, 2]")).kv_heads ==
        Heads{4, 2});
  CHECK_THAT(
      refusal_of([&] { spec_of(tiny_deci().set("num_key_value_heads_per_layer", "[4, 5]")); }),
      is_bad_input("num_key_value_heads_per_layer", "12 query heads"));
}

TEST_CASE("new kv heads of DeciLM-7B are written as a list even if they are equal", "[formats]") {
  const Json config = Json::parse(with_kv_heads(tiny_deci(), {2, 2}));
  CHECK(config["num_key_value_heads_per_layer"] == Json::parse("[2, 2]"));
  CHECK(config["num_key_value_heads"] == 4);  // this model's loaders do not read it
}

TEST_CASE("writing kv heads into Nemotron-NAS blocks keeps every other byte", "[formats]") {
  TinyModel tiny = tiny_nas({kWhole, kWhole});
  const std::string first = R"({"n_heads_in_group": 1,  "no_op": false})";
  const auto text_with = [](const std::string& a, const std::string& b) {
    return R"({ "block_configs" :[ {"attention": )" + a + R"(}
      , {"ffn": {}, "attention" : )" +
           b + "}\t] , \"x\": 1e2 }";
  };
  const ModelSpec spec = spec_of(tiny);
  const std::string before = text_with(first, R"({"n_heads_in_group": null})");
  CHECK(config_with_kv_heads(before, spec, {4, 0}) ==
        text_with(R"({"n_heads_in_group": 3,  "no_op": false})", R"({"n_heads_in_group": null})"));
  CHECK(spec_of(TinyModel{with_kv_heads(tiny, {6, 1}), tiny.tensors}).kv_heads == Heads{6, 1});
}

TEST_CASE("writing kv heads is refused where the blocks are not objects", "[formats]") {
  const ModelSpec spec = spec_of(tiny_nas({kWhole, kWhole}));
  for (const char* text : {"{}", R"({"block_configs": {}})", R"({"block_configs": [1, 2]})",
                           R"({"block_configs": [{"attention": 3}]})"}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&] { config_with_kv_heads(text, spec, {4, 4}); }),
               is_bad_input("is no"));
  }
}

}  // namespace
}  // namespace regroup
