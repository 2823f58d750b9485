// Nemotron-NAS, whose layers differ, as a source and as a target of conversions.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

// n_heads_in_group of each layer, null for layers without attention.
Json heads_in_groups(const Json& config) {
  Json all = Json::array();
  for (const Json& block : config["block_configs"]) {
    all.push_back(block["attention"]["n_heads_in_group"]);
  }
  return all;
}

TEST_CASE("a converted Nemotron-NAS has query heads per kv head in each layer's block",
          "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("nemotron_nas"), directory / "mqa", {.kv_heads = {1}});
  const Model mqa = open_model(directory / "mqa");
  CHECK(heads_in_groups(mqa.config) == Json{6, nullptr, 6, nullptr, 6});
  CHECK(mqa.spec.kv_heads == Heads{1, 0, 1, 0, 1});
  CHECK(mqa.config["num_key_value_heads"].is_null());  // unchanged
  CHECK(mqa.config["regroup"]["source_kv_heads"] == Json{6, 0, 2, 0, 3});
  check_all_shapes(mqa.spec, mqa.checkpoint);

  // A list's entries for layers without attention are ignored.
  convert(golden("nemotron_nas"), directory / "listed", {.kv_heads = {3, 1, 2, 1, 1}});
  const Model listed = open_model(directory / "listed");
  CHECK(heads_in_groups(listed.config) == Json{2, nullptr, 3, nullptr, 6});
  CHECK(listed.spec.kv_heads == Heads{3, 0, 2, 0, 1});
  check_all_shapes(listed.spec, listed.checkpoint);

  convert(directory / "listed", directory / "expanded", {.target = "expanded"});
  const Model expanded = open_model(directory / "expanded");
  CHECK(heads_in_groups(expanded.config) == Json{1, nullptr, 1, nullptr, 1});
  check_all_shapes(expanded.spec, expanded.checkpoint);
}

TEST_CASE("a layer of Nemotron-NAS with too few kv heads is named", "[converter]") {
  const Model source = open_model(golden("nemotron_nas"));
  CHECK_THAT(refusal_of([&] { plan_conversion(source, {.kv_heads = {3}}); }),
             is_wrong_usage("layer 2 has only 2"));
}

TEST_CASE("layers without attention take no cache", "[converter]") {
  const ConversionPlan plan =
      plan_conversion(open_model(golden("nemotron_nas")), {.kv_heads = {1}});
  REQUIRE(plan.kv_bytes_per_token);
  CHECK(plan.kv_bytes_per_token->before == 2 * (6 + 2 + 3) * 4 * 2);
  CHECK(plan.kv_bytes_per_token->after == 2 * 3 * 4 * 2);
}

TEST_CASE("a Llama whose layers differ in kv heads is written as Nemotron-NAS", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "llama", tiny_llama({.hidden_size = 24, .intermediate_size = 256}));
  // Its own form names this one.
  const auto notes = plan_conversion(open_model(directory / "llama"), {.kv_heads = {12, 3}}).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.ends_with("vLLM and mlx-lm load it with --target nemotron-nas");
  }));
  convert(directory / "llama", directory / "mixed", {.kv_heads = {12, 3}});
  const std::string card = bytes_of_file(directory / "mixed/README.md");
  CHECK(card.find("# llama with 3 or 12 key and value heads\n") != card.npos);
  CHECK(card.find("| vLLM | after `regroup convert DIRECTORY OTHER --target nemotron-nas`: "
                  "`vllm serve OTHER --trust-remote-code` |") != card.npos);
  convert(directory / "llama", directory / "nas", {.kv_heads = {12, 3}, .target = "nemotron-nas"});
  // The card of a result in another form tells how its heads were pooled.
  convert(directory / "mixed", directory / "again", {.target = "nemotron-nas"});
  const std::string other = bytes_of_file(directory / "again/README.md");
  CHECK(other.find("method `mean`, grouping `contiguous`. The result was then written in another "
                   "form.") != other.npos);
  CHECK(other.find("No heads were pooled") == other.npos);
  const Model model = open_model(directory / "nas");
  CHECK(model.spec.architecture == "DeciLMForCausalLM");
  CHECK(model.config["model_type"] == "nemotron-nas");
  CHECK(heads_in_groups(model.config) == Json{1, 4});
  CHECK(model.spec.kv_heads == Heads{12, 3});
  CHECK(model.spec.layers[1].intermediate_size == 256);
  check_all_shapes(model.spec, model.checkpoint);
}

TEST_CASE("a Llama whose MLP size is not a multiple of 256 is not written as Nemotron-NAS",
          "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "llama", tiny_llama({.hidden_size = 24, .intermediate_size = 255}));
  CHECK_THAT(
      refusal_of([&] {
        plan_conversion(open_model(directory / "llama"),
                        {.kv_heads = {12, 3}, .target = "nemotron-nas"});
      }),
      is_wrong_usage("nemotron-nas: the MLP's width: 255, the target's is 256; --target same"));
}

}  // namespace
}  // namespace regroup
