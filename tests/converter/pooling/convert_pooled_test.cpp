// Conversions with computed instead of averaged heads: tensors, records and refusals.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/conversion_plan.h"
#include "formats/base/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/converter/pooling/pooled_conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

TEST_CASE("as many kv heads as before copies every byte with every method", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom());
  for (const PoolMethod method : {PoolMethod::kFirst, PoolMethod::kRandom, PoolMethod::kLowrank}) {
    const auto result = directory / std::string(name_of(method));
    convert(directory / "source", result, request_of(method, 12));
    const Checkpoint before = open_checkpoint(directory / "source");
    const Checkpoint after = open_checkpoint(result);
    for (const TensorInfo& tensor : before.tensors()) {
      CHECK((bytes_of(after, tensor.name) == bytes_of(before, tensor.name)));
    }
  }
}

TEST_CASE("first and random keep a head of each group and all queries bit for bit", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.dtype = DType::kBF16}));
  for (const PoolMethod method : {PoolMethod::kFirst, PoolMethod::kRandom}) {
    const auto result = directory / std::string(name_of(method));
    convert(directory / "source", result, request_of(method, 4));
    const Checkpoint before = open_checkpoint(directory / "source");
    const Checkpoint after = open_checkpoint(result);
    const std::string prefix = "model.layers.1.self_attn.";
    CHECK(
        (bytes_of(after, prefix + "q_proj.weight") == bytes_of(before, prefix + "q_proj.weight")));
    CHECK(
        (bytes_of(after, prefix + "o_proj.weight") == bytes_of(before, prefix + "o_proj.weight")));
    const std::string heads = bytes_of(before, prefix + "k_proj.weight");
    const std::string kept = bytes_of(after, prefix + "k_proj.weight");
    const std::size_t size = heads.size() / 12;
    REQUIRE(kept.size() == 4 * size);
    for (std::size_t group = 0; group < 4; ++group) {
      const std::string head = kept.substr(group * size, size);
      bool found = false;
      for (std::size_t j = 3 * group; j < 3 * group + (method == PoolMethod::kFirst ? 1 : 3); ++j) {
        found = found || heads.substr(j * size, size) == head;
      }
      CHECK(found);
    }
  }
}

TEST_CASE("config and metadata record the method", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama());
  ConversionRequest request = request_of(PoolMethod::kRandom, 3);
  request.pooling.seed = 17;
  convert(directory / "source", directory / "random", request);
  const Json block = Json::parse(tree_of(directory / "random").at("config.json")).at("regroup");
  CHECK(block.at("pool") == "random");
  CHECK(block.at("pool_seed") == 17);
  convert(directory / "source", directory / "lowrank", request_of(PoolMethod::kLowrank, 3));
  CHECK(open_checkpoint(directory / "lowrank").metadata().at("regroup.pool") == "lowrank");
}

TEST_CASE("the report and the result record what each computed layer keeps", "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", tiny_llama()));
  const std::atomic<bool> stop{false};
  put_statistics(directory / "stats.safetensors", source, 3.0);
  const auto statistics = open_calibration(directory / "stats.safetensors", source);
  const auto calibrated = [&](PoolMethod method) {
    ConversionRequest request = request_of(method, 4);
    request.calibration = statistics;
    return plan_conversion(source, request);
  };
  const ConversionPlan plan = calibrated(PoolMethod::kLowrank);
  const auto layers = execute_conversion(plan, source, directory / "result", {}, stop);
  REQUIRE(layers.size() == 2);
  CHECK(layers[1].layer == 1);
  CHECK(layers[1].groups.size() == 4);
  CHECK(layers[1].groups[0].value_energy > 0.0);
  CHECK(layers[1].groups[0].value_energy < 1.0);
  const auto block = [&](const char* name) {
    return Json::parse(tree_of(directory / name).at("config.json")).at("regroup");
  };
  const Json recorded = block("result").at("layers");
  REQUIRE(recorded.size() == 2);
  CHECK(recorded[1].at("attention") == "decoder");
  CHECK(recorded[1].at("layer") == 1);
  CHECK(std::abs(2.0 - loss_of(layers[1]) - recorded[1].at("key_energy_kept").get<double>() -
                 recorded[1].at("value_energy_kept").get<double>()) < 1e-5);
  const ConversionPlan mean = calibrated(PoolMethod::kMean);
  CHECK(execute_conversion(mean, source, directory / "mean", {}, stop).empty());
  CHECK_FALSE(block("mean").contains("layers"));  // nothing was measured
  const auto measured = measure_pooling(mean, source.checkpoint, stop);
  REQUIRE(measured.size() == 2);
  CHECK(measured[1].groups[0].value_energy < layers[1].groups[0].value_energy);
}

TEST_CASE("energies without calibration statistics are not recorded", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama());
  convert(directory / "source", directory / "result", request_of(PoolMethod::kLowrank, 3));
  const Json block = Json::parse(tree_of(directory / "result").at("config.json")).at("regroup");
  CHECK_FALSE(block.contains("layers"));
}

TEST_CASE("a change of basis is refused for clamped projections", "[converter]") {
  const TemporaryDirectory directory;
  const Model source =
      open_model(put_model(directory / "source", golden_model("olmo").set("clip_qkv", "8.0")));
  CHECK_THAT(refusal_of([&] { plan_conversion(source, request_of(PoolMethod::kLowrank, 1)); }),
             is_wrong_usage("clip_qkv", "lowrank", "mean"));
  CHECK_NOTHROW(plan_conversion(source, request_of(PoolMethod::kFirst, 1)));
}

TEST_CASE("a note says that keys after LayerNorm are averaged", "[converter]") {
  const auto is_noted = [](const char* name) {
    const Model source = open_model(golden(name));
    const ConversionPlan plan = plan_conversion(source, request_of(PoolMethod::kLowrank, 1));
    return std::ranges::any_of(plan.notes, [](const std::string& note) {
      return note.find("keys are averaged") != std::string::npos;
    });
  };
  CHECK(is_noted("phi_qk_layernorm"));
  CHECK_FALSE(is_noted("qwen3"));
  CHECK_FALSE(is_noted("olmo2"));
}

TEST_CASE("NaN in a layer's heads is refused with the tensor's name", "[converter]") {
  for (const char* part : {"q_proj.weight", "k_proj.bias", "v_proj.weight", "o_proj.weight"}) {
    CAPTURE(part);
    const TemporaryDirectory directory;
    TinyModel tiny = tiny_llama({.attention_bias = true});
    const std::string name = std::string("model.layers.1.self_attn.") + part;
    BuiltTensor& tensor = tiny.tensor(name);
    std::vector<double> values = values_of(tensor);
    values[5] = std::numeric_limits<double>::quiet_NaN();
    tensor = tensor_of(tensor.name, tensor.dtype, tensor.shape, values);
    put_model(directory / "source", tiny);
    CHECK_THAT(refusal_of([&] {
                 convert(directory / "source", directory / "result",
                         request_of(PoolMethod::kLowrank, 4));
               }),
               is_bad_input("model.safetensors: tensor " + name, "NaN"));
  }
}

TEST_CASE("statistics of another model or width or kind are refused", "[converter]") {
  const TemporaryDirectory directory;
  const std::vector<BuiltTensor> tensors{
      varied_tensor("decoder.0.mean", DType::kF32, {6}),
      varied_tensor("decoder.0.covariance", DType::kF32, {6, 5})};
  put_checkpoint(directory / "plain.safetensors", tensors);
  CHECK_THAT(refusal_of([&] { Calibration(directory / "plain.safetensors"); }),
             is_bad_input("plain.safetensors", "regroup calibrate"));
  put_checkpoint(directory / "stats.safetensors", tensors, statistics_of("abc"));
  const Calibration calibration(directory / "stats.safetensors");
  CHECK_NOTHROW(calibration.check_source("abc"));
  CHECK_THAT(refusal_of([&] { calibration.check_source("xyz"); }),
             is_bad_input("stats.safetensors", "another model", "abc", "xyz"));
  CHECK_THAT(
      refusal_of([&] { calibration.moments(AttentionRole::kSelf, 0, InputSide::kQueries, 6); }),
      is_bad_input("decoder.0.covariance", "[6, 5]", "[6, 6]"));
  CHECK_THAT(
      refusal_of([&] { calibration.moments(AttentionRole::kSelf, 1, InputSide::kQueries, 6); }),
      is_bad_input("decoder.1.mean"));
}

TEST_CASE("correlations of few samples shrink and the number of samples must be known",
          "[converter]") {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& samples) {
    auto facts = statistics_of("abc");
    facts[kCalibrationTokensKey] = samples;
    const std::vector<BuiltTensor> tensors{
        tensor_of("decoder.0.mean", DType::kF32, {2}, std::vector{3.0, 4.0}),
        tensor_of("decoder.0.covariance", DType::kF32, {2, 2}, std::vector{8.0, 2.0, 2.0, 16.0})};
    const std::filesystem::path path = directory / "stats.safetensors";
    put_checkpoint(path, tensors, facts);
    return Calibration(path);
  };
  const auto moments = [&](const std::string& samples) {
    return open(samples).moments(AttentionRole::kSelf, 0, InputSide::kQueries, 2);
  };
  // Two features count as two samples without correlation.
  CHECK(moments("6").covariance == std::vector{8.0, 1.5, 1.5, 16.0});
  CHECK(moments("2").covariance == std::vector{8.0, 1.0, 1.0, 16.0});
  CHECK(moments("6").mean == std::vector{3.0, 4.0});
  for (const char* bad :
       {"", "0", "-5", "6.5", "6 ", "many", "1,\"pool\":2", "99999999999999999999999"}) {
    CAPTURE(bad);
    CHECK_THAT(refusal_of([&] { open(bad); }),
               is_bad_input("stats.safetensors", kCalibrationTokensKey, "number of tokens"));
  }
}

}  // namespace
}  // namespace regroup
