// Layout files of models with query and key norms.
#include <catch2/catch_test_macros.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

Json layout_of_llama(bool with_norms) {
  const std::string of_layer = "model.layers.{layer}.self_attn.";
  Json layout{{"layers", "num_hidden_layers"},        {"hidden_size", "hidden_size"},
              {"query_heads", "num_attention_heads"}, {"q", of_layer + "q_proj.weight"},
              {"k", of_layer + "k_proj.weight"},      {"v", of_layer + "v_proj.weight"},
              {"o", of_layer + "o_proj.weight"}};
  if (with_norms) {
    layout["q_norm"] = of_layer + "q_norm.weight";
    layout["k_norm"] = of_layer + "k_norm.weight";
  }
  return layout;
}

void convert_by_layout(const fs::path& source, const Json& layout, const fs::path& destination) {
  const TemporaryDirectory directory;
  put_file(directory / "layout.json", layout.dump());
  const Model model = open_model(source, {.layout = directory / "layout.json"});
  const std::atomic<bool> stop{false};
  execute_conversion(plan_conversion(model, {.kv_heads = {2}}), model, destination, {}, stop);
}

TEST_CASE("an omitted norm over all keys is refused and a listed one is pooled", "[converter]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] {
               convert_by_layout(golden("olmo2"), layout_of_llama(false), directory / "x");
             }),
             is_bad_input("self_attn.k_norm.weight", "as wide as the keys", "layout"));
  convert_by_layout(golden("olmo2"), layout_of_llama(true), directory / "by layout");
  convert(golden("olmo2"), directory / "known", {.kv_heads = {2}});
  const Checkpoint by_layout = open_checkpoint(directory / "by layout");
  const Checkpoint known = open_checkpoint(directory / "known");
  REQUIRE(by_layout.tensors().size() == known.tensors().size());
  for (const TensorInfo& tensor : known.tensors()) {
    CAPTURE(tensor.name);
    CHECK(by_layout.at(tensor.name).shape == tensor.shape);
    CHECK((bytes_of(by_layout, tensor.name) == bytes_of(known, tensor.name)));
  }
}

TEST_CASE("norms shared by all heads may be omitted in a layout", "[converter]") {
  const TemporaryDirectory directory;
  Json layout = layout_of_llama(false);
  layout["head_dim"] = "head_dim";
  convert_by_layout(golden("qwen3"), layout, directory / "by layout");
  const Checkpoint result = open_checkpoint(directory / "by layout");
  CHECK(result.at("model.layers.0.self_attn.k_norm.weight").shape == Shape{4});
}

TEST_CASE("an unknown tensor as wide as the keys is refused for a known family", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel model = golden_model("bert");
  model.tensors.push_back(
      varied_tensor("bert.encoder.layer.1.attention.self.layer_norm_k.weight", DType::kF32, {24}));
  put_model(directory / "source", model);
  CHECK_THAT(
      refusal_of([&] { plan_conversion(open_model(directory / "source"), {.kv_heads = {3}}); }),
      is_bad_input("layer.1.attention.self.layer_norm_k.weight"));
  plan_conversion(open_model(directory / "source"), {});  // the number of kv heads stays the same
}

}  // namespace
}  // namespace regroup
