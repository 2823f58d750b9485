// Layers, parts and disagreements of models, compared with hand-computed values.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "formats/spec/alibi.h"
#include "tests/file_tree.h"
#include "tests/formats/model/summary_of.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("every layer lists its heads and parameters and cache bytes", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory.path(), tiny_llama({.kv_heads = 4, .dtype = DType::kBF16}));
  const Model model = open_model(directory.path());
  const auto layers = summarize_layers(model.spec, model.checkpoint);
  REQUIRE(layers.size() == 2);
  CHECK(layers[1].layer == 1);
  CHECK(layers[1].query_heads == 12);
  CHECK(layers[1].kv_heads == 4);
  CHECK(layers[1].config_kv_heads == 4);
  CHECK(layers[1].parameters == 12 + 2 * 144 + 2 * 48 + 3 * 24);
  CHECK(layers[1].bytes == 2 * layers[1].parameters);
  CHECK(layers[1].kv_bytes_per_token == 2 * 4 * 2 * 2);
  CHECK_FALSE(layers[1].window);
}

TEST_CASE("the layers of an encoder-decoder are listed role by role", "[formats]") {
  const Model model = open_model(golden("t5"));
  const auto layers = summarize_layers(model.spec, model.checkpoint);
  REQUIRE(layers.size() == model.spec.encoder_layers.size() + 2 * model.spec.layers.size());
  CHECK(layers.front().role == AttentionRole::kEncoder);
  CHECK_FALSE(layers.front().kv_bytes_per_token);
  CHECK(layers.back().role == AttentionRole::kCross);
  CHECK(layers.back().kv_bytes_per_token == 2U * 12 * 3 * 4);
  std::uint64_t parameters = 0;
  for (const LayerSummary& layer : layers) {
    parameters += layer.parameters;
  }
  // All tensors except the embedding and the two final norms are in a layer.
  const auto width = static_cast<std::uint64_t>(model.spec.hidden_size);
  CHECK(parameters + 2 * width + width * static_cast<std::uint64_t>(model.spec.vocab_size) ==
        summary_of(golden("t5")).parameters);
}

TEST_CASE("the parts add up to all parameters in every family", "[formats]") {
  for (const char* name : {"llama", "gpt2", "bloom", "t5", "t5_v1_1", "bert", "falcon_40b", "gptj",
                           "opt_350m", "nemotron_nas", "gguf/llama.gguf", "mpt", "olmoe",
                           "qwen2_moe", "mixtral_stacked", "deepseek"}) {
    CAPTURE(name);
    const ModelSummary summary = summary_of(golden(name));
    std::uint64_t sum = 0;
    for (const auto& [part, count] : summary.parameters_by_part) {
      sum += count;
    }
    CHECK(sum == summary.parameters);
  }
}

TEST_CASE("a decoding step reads the embedding only if it is also the output", "[formats]") {
  const Model llama = open_model(golden("llama"));
  const Model gpt2 = open_model(golden("gpt2"));
  const auto all = [](const Model& model) {
    std::uint64_t bytes = 0;
    for (const TensorInfo& tensor : model.checkpoint.tensors()) {
      bytes += tensor.bytes();
    }
    return bytes;
  };
  CHECK(bytes_read_per_step(llama.spec, llama.checkpoint) ==
        all(llama) - llama.checkpoint.at("model.embed_tokens.weight").bytes());
  CHECK(bytes_read_per_step(gpt2.spec, gpt2.checkpoint) ==
        all(gpt2) - gpt2.checkpoint.at(gpt2.spec.position_embedding).bytes());
}

TEST_CASE("a token uses, and a step reads, only the experts that it chooses", "[formats]") {
  for (const char* name : {"olmoe", "mixtral_stacked"}) {
    CAPTURE(name);
    const Model model = open_model(golden(name));
    const ModelSpec& spec = model.spec;
    const std::uint64_t each = 3UL * 12 * 24;
    const auto experts = static_cast<std::uint64_t>(spec.routing.experts);
    const auto chosen = static_cast<std::uint64_t>(spec.routing.per_token);
    const ModelSummary summary = summary_of(golden(name));
    CHECK(summary.active_parameters == summary.parameters - 2 * (experts - chosen) * each);
    CHECK(summary.parameters_by_part.at("experts") == 2 * (experts * each + experts * 24));
    CHECK(bytes_of_experts(spec, model.checkpoint) == 4 * 2 * experts * each);
    ModelSpec all = spec;
    all.routing.per_token = all.routing.experts;
    CHECK(bytes_read_per_step(all, model.checkpoint) -
              bytes_read_per_step(spec, model.checkpoint) ==
          4 * 2 * (experts - chosen) * each);
    CHECK(spec.share_of_experts(1) == 0.5);
    CHECK(spec.share_of_experts(2) == 0.75);
  }
  CHECK_FALSE(summary_of(golden("llama")).active_parameters);
}

TEST_CASE("a wrong total size in an index is reported", "[formats]") {
  const TemporaryDirectory directory;
  put_sharded_model(directory.path(), tiny_llama(), 4);
  CHECK(summary_of(directory.path()).disagreements.empty());
  const auto index = directory / "model.safetensors.index.json";
  Json json = Json::parse(bytes_of_file(index));
  json["metadata"] = {{"total_size", 1}};
  put_file(index, json.dump());
  const auto found = summary_of(directory.path()).disagreements;
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], ContainsSubstring("total_size is 1, the tensors have"));
  CHECK(summary_of(index).disagreements == found);
}

TEST_CASE("tensors that an index lists and no file has are reported", "[formats]") {
  const TemporaryDirectory directory;
  put_sharded_model(directory.path(), tiny_llama(), 4);
  const auto index = directory / "model.safetensors.index.json";
  Json json = Json::parse(bytes_of_file(index));
  json["weight_map"]["model.rotary.inv_freq"] = json["weight_map"].begin().value();
  put_file(index, json.dump());
  const auto found = summary_of(directory.path()).disagreements;
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0],
             ContainsSubstring("1 of the tensors") && ContainsSubstring("model.rotary.inv_freq"));
}

TEST_CASE("recorded slopes that differ from the formula's are reported", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_bloom();
  std::vector<double> slopes = alibi_slopes(12);
  const auto told = [&] {
    model.set("regroup", Json({{"alibi", {{"bias_max", 8.0}, {"slopes", slopes}}}}).dump());
    return summary_of(put_model(directory.path(), model)).disagreements;
  };
  CHECK(told().empty());
  std::swap(slopes[0], slopes[5]);
  REQUIRE(told().size() == 1);
  CHECK_THAT(told()[0], ContainsSubstring("decoder layers 0, 1: ") &&
                            ContainsSubstring("the formula's in another order"));
  slopes[3] = 0.7;
  CHECK_THAT(told()[0], ContainsSubstring("not the formula's"));
}

TEST_CASE("slopes that only regroup computes are reported if loaders accept the model's name",
          "[formats]") {
  const TemporaryDirectory directory;
  std::vector<double> slopes = alibi_slopes(12);
  std::reverse(slopes.begin(), slopes.end());
  TinyModel model = tiny_bloom();
  model.set("regroup", Json({{"alibi", {{"slopes", slopes}}}}).dump());
  const auto told = [&] { return summary_of(put_model(directory.path(), model)).disagreements; };
  CHECK(told().size() == 1);
  model.config = with_alibi_names(model.config);
  CHECK(told().empty());
}

TEST_CASE("a stored copy of the embedding that differs from it is reported", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_gpt2();
  model.tensors.push_back(model.tensor("transformer.wte.weight"));
  model.tensors.back().name = "lm_head.weight";
  const auto told = [&] { return summary_of(put_model(directory.path(), model)).disagreements; };
  CHECK(told().empty());
  model.tensors.back().bytes.back() ^= 1;
  REQUIRE(told().size() == 1);
  CHECK_THAT(told()[0], ContainsSubstring("ties lm_head.weight to transformer.wte.weight"));
}

TEST_CASE("differences between JSON documents are listed by path", "[formats]") {
  const auto found = differences_between(
      Json::parse(R"({"a": 1, "b": {"c": [1, 2, 3], "d": 2}, "e": [1], "f": 2.0})"),
      Json::parse(R"({"f": 2, "b": {"d": 2, "c": [1, 5, 3], "new": null}, "e": [1, 2]})"));
  REQUIRE(found.size() == 4);
  CHECK(found[0].path == "a");
  CHECK_FALSE(found[0].after);
  CHECK(found[1].path == "b.c[1]");
  CHECK(*found[1].before == 2);
  CHECK(*found[1].after == 5);
  CHECK(found[2].path == "b.new");
  CHECK_FALSE(found[2].before);
  CHECK(found[3].path == "e");
}

TEST_CASE("a config without weights can be inspected", "[formats]") {
  const TemporaryDirectory directory;
  std::filesystem::copy_file(golden("llama") / "config.json", directory / "config.json");
  for (const auto& path : {directory.path(), directory / "config.json"}) {
    const Model outline = open_model_outline(path);
    const Model whole = open_model(golden("llama"));
    REQUIRE(outline.checkpoint.tensors().size() == whole.checkpoint.tensors().size());
    for (const TensorInfo& tensor : outline.checkpoint.tensors()) {
      CHECK(tensor.shape == whole.checkpoint.at(tensor.name).shape);
    }
  }
}

}  // namespace
}  // namespace regroup
