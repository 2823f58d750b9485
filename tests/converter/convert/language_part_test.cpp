// Conversion of language models inside other models.
#include <catch2/catch_test_macros.hpp>

#include "converter/convert/execute_plan.h"
#include "converter/convert/verify_conversion.h"
#include "formats/base/file.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

// The text of a result's config without the record of the conversion.
Json settings_of(const std::filesystem::path& model) {
  Json config = parse_json_object(read_text(model / "config.json", kMaxConfigBytes), "config.json");
  config.erase("regroup");
  return config;
}

TEST_CASE("only the language model's keys and values change, and its number of them",
          "[converter]") {
  const TemporaryDirectory directory;
  for (const char* name : {"llava", "qwen2_5_vl", "qwen3_vl"}) {
    CAPTURE(name);
    const auto source = golden(name);
    convert(source, directory / name, {.kv_heads = {2}});
    const Model before = open_model(source);
    const Model after = open_model(directory / name);
    CHECK(after.spec.kv_heads == std::vector<std::int64_t>{2, 2});
    std::size_t changed = 0;
    REQUIRE(after.checkpoint.tensors().size() == before.checkpoint.tensors().size());
    for (const TensorInfo& tensor : before.checkpoint.tensors()) {
      const bool same =
          bytes_of(before.checkpoint, tensor.name) == bytes_of(after.checkpoint, tensor.name);
      const bool pooled = tensor.name.find("layers.") != std::string::npos &&
                          tensor.name.find("vision") == std::string::npos &&
                          (tensor.name.find("self_attn.k_proj") != std::string::npos ||
                           tensor.name.find("self_attn.v_proj") != std::string::npos);
      CAPTURE(tensor.name);
      CHECK(same != pooled);
      changed += same ? 0 : 1;
    }
    CHECK(changed == (before.checkpoint.find("model.layers.0.self_attn.k_proj.bias") ? 8 : 4));
    Json expected = settings_of(source);
    Json& part = expected.contains("text_config") ? expected["text_config"] : expected;
    part["num_key_value_heads"] = 2;
    CHECK(settings_of(directory / name).dump() == expected.dump());
  }
}

TEST_CASE("a number of kv heads at the top and in the part changes in both places", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", golden_model("llava").set("num_key_value_heads", "6"));
  convert(directory / "source", directory / "result", {.kv_heads = {3}});
  const Json config = settings_of(directory / "result");
  CHECK(config["num_key_value_heads"] == 3);
  CHECK(config["text_config"]["num_key_value_heads"] == 3);
}

TEST_CASE("a language model inside another model keeps its form and its positions", "[converter]") {
  const Model llava = open_model(golden("llava"));
  const auto refusal_with = [&](ConversionRequest request) {
    request.kv_heads = {2};
    return refusal_of([&] { plan_conversion(llava, request); });
  };
  CHECK_THAT(refusal_with({.container = Container::kGguf}),
             is_wrong_usage("inside a llava model is converted in place"));
  CHECK_THAT(refusal_with({.target = "LlamaForCausalLM"}), is_wrong_usage("in place"));
  CHECK_THAT(refusal_with({.positions = PositionChange::kAlibi}),
             is_wrong_usage("inside a llava model keeps its positions"));
}

TEST_CASE("a part whose loaders take no groups is only written on request", "[converter]") {
  TinyModel model = golden_model("opt");
  for (BuiltTensor& tensor : model.tensors) {
    tensor.name = "language_model." + tensor.name;
  }
  model.config = "{\"model_type\": \"blip-2\", \"text_config\": " + model.config + "}";
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", model));
  CHECK(source.spec.whole_model == "blip-2");
  CHECK_THAT(refusal_of([&] { plan_conversion(source, {.kv_heads = {2}, .target = "auto"}); }),
             is_wrong_usage("opt inside a blip-2 model", "--target expanded"));
  const ConversionPlan plan = plan_conversion(source, {.kv_heads = {2}, .target = "expanded"});
  CHECK(plan.target.kv_heads.front() == source.spec.query_heads);
}

}  // namespace
}  // namespace regroup
