// Conversions whose heads are computed rather than averaged: tensors, provenance, refusals.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include <catch2/catch_test_macros.hpp>

#include "converter/conversion_plan.h"
#include "converter/recorded_request.h"
#include "converter/similar_grouping.h"
#include "converter/verify_conversion.h"
#include "formats/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

ConversionRequest request_of(PoolMethod method, std::int64_t kv_heads) {
  ConversionRequest request;
  request.kv_heads = {kv_heads};
  request.pooling = {method, 0};
  return request;
}

// What a layer loses of its keys and values.
double loss_of(const LayerReport& layer) {
  double loss = 0.0;
  for (const GroupReport& group : layer.groups) {
    loss += group.key_share * (1 - group.key_energy) + group.value_share * (1 - group.value_energy);
  }
  return loss;
}

TEST_CASE("as many groups as heads copy every byte, whatever the method", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom());
  for (const PoolMethod method :
       {PoolMethod::kFirst, PoolMethod::kSelect, PoolMethod::kAligned, PoolMethod::kLowrank}) {
    const auto result = directory / std::string(name_of(method));
    convert(directory / "source", result, request_of(method, 12));
    const Checkpoint before = open_checkpoint(directory / "source");
    const Checkpoint after = open_checkpoint(result);
    for (const TensorInfo& tensor : before.tensors()) {
      CHECK((bytes_of(after, tensor.name) == bytes_of(before, tensor.name)));
    }
  }
}

TEST_CASE("what was solved for is verified, and a flipped bit of it caught", "[converter]") {
  const Model source = open_model(golden("llama_mha"));
  for (const PoolMethod method :
       {PoolMethod::kSelect, PoolMethod::kAligned, PoolMethod::kLowrank}) {
    CAPTURE(name_of(method));
    const TemporaryDirectory directory;
    const auto path = directory / "result";
    convert(golden("llama_mha"), path, request_of(method, 3));
    const auto wrong_tensors = [&] {
      const Model result = open_model(path);
      const ConversionPlan plan =
          plan_conversion(source, recorded_request(source, result, nullptr));
      return verify_conversion(plan, source, result, [](auto, auto) {}).tensors.size();
    };
    CHECK(wrong_tensors() == 0);
    const Checkpoint checkpoint = open_checkpoint(path);
    std::string bytes = bytes_of_file(path / "model.safetensors");
    bytes[checkpoint.at("model.layers.1.self_attn.v_proj.weight").begin + 1] ^= 1;
    put_file(path / "model.safetensors", bytes);
    CHECK(wrong_tensors() == 1);
  }
}

TEST_CASE("first keeps a head of each group bit for bit, and queries and outputs", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.dtype = DType::kBF16}));
  for (const PoolMethod method : {PoolMethod::kFirst, PoolMethod::kSelect}) {
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

TEST_CASE("config and metadata name the method", "[converter]") {
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

TEST_CASE("a report tells what each computed layer keeps, and so does the result", "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", tiny_llama()));
  const std::atomic<bool> stop{false};
  const ConversionPlan plan = plan_conversion(source, request_of(PoolMethod::kLowrank, 4));
  const auto layers =
      execute_conversion(plan, source, directory / "result", [](auto, auto) {}, stop);
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
  const ConversionPlan mean = plan_conversion(source, request_of(PoolMethod::kMean, 4));
  CHECK(execute_conversion(mean, source, directory / "mean", [](auto, auto) {}, stop).empty());
  CHECK_FALSE(block("mean").contains("layers"));  // nothing was measured
  const auto measured = measure_pooling(mean, source.checkpoint, stop);
  REQUIRE(measured.size() == 2);
  CHECK(measured[1].groups[0].value_energy < layers[1].groups[0].value_energy);
}

SimilarGrouping similar_grouping(const Model& source, const ConversionRequest& request) {
  const std::atomic<bool> stop{false};
  return find_similar_grouping(
      plan_conversion(source, request), source.checkpoint, [](auto) {}, stop);
}

TEST_CASE("heads grouped by similarity lose what was foretold, and less than neighbours",
          "[converter]") {
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kSelect, PoolMethod::kLowrank}) {
    const Model source = open_model(golden("llama_mha"));
    ConversionRequest request = request_of(method, 3);
    const SimilarGrouping found = similar_grouping(source, request);
    REQUIRE(found.layers.size() == 2);
    request.grouping = "similar";
    request.order = found.order;
    const std::atomic<bool> stop{false};
    const auto layers = measure_pooling(plan_conversion(source, request), source.checkpoint, stop);
    for (const std::size_t i : {0U, 1U}) {
      CAPTURE(name_of(method), i);
      CHECK(std::abs(loss_of(layers.at(i)) - found.layers[i].loss) < 1e-9);
      CHECK(found.layers[i].loss <= found.layers[i].contiguous_loss);
    }
    CHECK(found.layers[0].loss + found.layers[1].loss <
          found.layers[0].contiguous_loss + found.layers[1].contiguous_loss - 1e-3);
  }
}

TEST_CASE("each stack of a T5 is grouped as one, and loses what was foretold", "[converter]") {
  const Model source = open_model(golden("t5"));
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kLowrank}) {
    for (const std::int64_t groups : {6, 4}) {
      ConversionRequest request = request_of(method, groups);
      request.roles = source.spec.roles();
      const SimilarGrouping found = similar_grouping(source, request);
      CHECK(found.layers.size() == 8);  // encoder 2, decoder and cross-attention 3 each
      request.grouping = "similar";
      request.order = found.order;
      const ConversionPlan plan = plan_conversion(source, request);
      const std::atomic<bool> stop{false};
      const auto layers = measure_pooling(plan, source.checkpoint, stop);
      std::map<AttentionRole, double> gained;
      for (const LayerGrouping& grouping : found.layers) {
        const auto layer = std::find_if(layers.begin(), layers.end(), [&](const auto& other) {
          return other.role == grouping.role && other.layer == grouping.layer;
        });
        CAPTURE(name_of(method), groups, name_of(grouping.role), grouping.layer);
        REQUIRE(layer != layers.end());
        CHECK(std::abs(loss_of(*layer) - grouping.loss) < 1e-9);
        gained[grouping.role] += grouping.contiguous_loss - grouping.loss;
      }
      for (const AttentionRole role : source.spec.roles()) {
        CHECK(gained.at(role) > 1e-3);
      }
      CHECK(std::none_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
        return note.find("contiguous") != std::string::npos;
      }));
    }
  }
}

// Makes every two heads that follow one another in `pairs` equal in keys and values.
void pair_heads(TinyModel& model, const std::string& attention,
                const std::vector<std::size_t>& pairs) {
  for (const char* part : {".k.weight", ".v.weight"}) {
    BuiltTensor& tensor = model.tensor(attention + part);
    std::vector<double> values = values_of(tensor);
    const std::size_t size = values.size() / 12;
    for (std::size_t i = 0; i < 12; i += 2) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(pairs[i] * size), size,
                  values.begin() + static_cast<std::ptrdiff_t>(pairs[i + 1] * size));
    }
    tensor = tensor_of(tensor.name, tensor.dtype, tensor.shape, values);
  }
}

TEST_CASE("heads that are equal in all layers of a stack are found, in each stack others",
          "[converter]") {
  TinyModel model = golden_model("t5");
  const std::vector<std::size_t> encoder{0, 7, 1, 4, 2, 11, 3, 9, 5, 8, 6, 10};
  const std::vector<std::size_t> decoder{0, 5, 1, 11, 2, 3, 4, 8, 6, 9, 7, 10};
  for (const char* block : {"encoder.block.0", "encoder.block.1"}) {
    pair_heads(model, std::string(block) + ".layer.0.SelfAttention", encoder);
  }
  for (const char* block : {"decoder.block.0", "decoder.block.1", "decoder.block.2"}) {
    pair_heads(model, std::string(block) + ".layer.0.SelfAttention", decoder);
  }
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", model));
  ConversionRequest request = request_of(PoolMethod::kMean, 6);
  request.roles = {AttentionRole::kSelf, AttentionRole::kEncoder};
  const SimilarGrouping found = similar_grouping(source, request);
  using Heads = std::vector<std::int64_t>;
  for (const std::size_t layer : {0U, 1U}) {
    CHECK(found.order.heads(AttentionRole::kEncoder, layer, 12) ==
          Heads(encoder.begin(), encoder.end()));
    CHECK(found.order.heads(AttentionRole::kSelf, layer, 12) ==
          Heads(decoder.begin(), decoder.end()));
  }
  CHECK_FALSE(found.order.moves(AttentionRole::kCross, 0));
  for (const LayerGrouping& layer : found.layers) {
    CHECK(layer.loss < 1e-9);
    CHECK(layer.contiguous_loss > 1e-2);
  }
  request.kv_heads = {12, 6, 12};  // a layer that is not pooled has no say, but follows
  request.roles = {AttentionRole::kSelf};
  const SimilarGrouping one = similar_grouping(source, request);
  CHECK(one.layers.size() == 1);
  for (const std::size_t layer : {0U, 1U, 2U}) {
    CHECK(one.order.heads(AttentionRole::kSelf, layer, 12) ==
          Heads(decoder.begin(), decoder.end()));
  }
}

TEST_CASE("where layers that share a bias have different kv heads, a note says that they stay",
          "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("t5"), directory / "mixed",
          {.kv_heads = {12, 6, 12}, .roles = {AttentionRole::kSelf}});
  const Model source = open_model(directory / "mixed");
  ConversionRequest request = request_of(PoolMethod::kMean, 3);
  const SimilarGrouping found = similar_grouping(source, request);
  CHECK(found.layers.size() == 3);  // those of cross-attention
  CHECK_FALSE(found.order.moves(AttentionRole::kSelf, 0));
  request.grouping = "similar";
  request.order = found.order;
  const auto notes = plan_conversion(source, request).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("decoder layers that share a relative bias") != std::string::npos;
  }));
}

TEST_CASE("clamped projections refuse a change of basis", "[converter]") {
  const TemporaryDirectory directory;
  const Model source =
      open_model(put_model(directory / "source", golden_model("olmo").set("clip_qkv", "8.0")));
  for (const PoolMethod method : {PoolMethod::kAligned, PoolMethod::kLowrank}) {
    CHECK_THAT(refusal_of([&] { plan_conversion(source, request_of(method, 1)); }),
               is_wrong_usage("clip_qkv", name_of(method), "mean"));
  }
  CHECK_NOTHROW(plan_conversion(source, request_of(PoolMethod::kFirst, 1)));
}

TEST_CASE("with norms of keys a note says that keys are averaged", "[converter]") {
  const Model source = open_model(golden("qwen3"));
  const ConversionPlan plan = plan_conversion(source, request_of(PoolMethod::kLowrank, 1));
  bool found = false;
  for (const std::string& note : plan.notes) {
    found = found || note.find("keys are averaged") != std::string::npos;
  }
  CHECK(found);
}

TEST_CASE("NaN among the heads of a layer is refused", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_llama();
  BuiltTensor& q = tiny.tensor("model.layers.0.self_attn.q_proj.weight");
  std::vector<double> values = values_of(q);
  values[5] = std::numeric_limits<double>::quiet_NaN();
  q = tensor_of(q.name, q.dtype, q.shape, values);
  put_model(directory / "source", tiny);
  CHECK_THAT(refusal_of([&] {
               convert(directory / "source", directory / "result",
                       request_of(PoolMethod::kLowrank, 4));
             }),
             is_bad_input("layers.0.self_attn", "NaN"));
}

std::map<std::string, std::string> statistics_of(const std::string& fingerprint) {
  return {{kCalibrationFormatKey, kCalibrationFormat},
          {kCalibrationSourceKey, fingerprint},
          {kCalibrationTokensKey, "100"}};
}

TEST_CASE("statistics of another model, another width or another kind are refused", "[converter]") {
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

// Statistics of a model whose keys do not rotate, with that much of the first input.
void put_statistics(const std::filesystem::path& path, const Model& source, double first) {
  std::map<std::string, std::string> metadata = statistics_of(fingerprint_of(source));
  std::vector<BuiltTensor> tensors;
  const std::int64_t width = source.spec.hidden_size;
  for (std::size_t i = 0; i < source.spec.layers.size(); ++i) {
    std::vector<double> covariance(static_cast<std::size_t>(width * width), 0.0);
    for (std::size_t row = 0; row < static_cast<std::size_t>(width); ++row) {
      covariance[row * static_cast<std::size_t>(width + 1)] = row == 0 ? first : 1.0;
    }
    const std::string name = moments_name(AttentionRole::kSelf, i, InputSide::kQueries);
    tensors.push_back(varied_tensor(name + ".mean", DType::kF32, {width}));
    tensors.push_back(tensor_of(name + ".covariance", DType::kF32, {width, width}, covariance));
  }
  put_checkpoint(path, tensors, metadata);
}

TEST_CASE("calibrated results with heads that moved are verified with their statistics only",
          "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(golden("gpt2"));
  put_statistics(directory / "stats", source, 9.0);
  put_statistics(directory / "others", source, 8.0);  // of as many tokens
  const auto statistics = [&](const char* name) {
    return std::make_shared<const Calibration>(directory / name);
  };
  ConversionRequest request = request_of(PoolMethod::kLowrank, 3);
  request.calibration = statistics("stats");
  request.grouping = "similar";
  request.order = similar_grouping(source, request).order;
  REQUIRE_FALSE(request.order.empty());
  convert(golden("gpt2"), directory / "result", request);
  const Model result = open_model(directory / "result");
  const auto recorded = [&](std::shared_ptr<const Calibration> calibration) {
    return recorded_request(source, result, std::move(calibration));
  };
  const ConversionPlan plan = plan_conversion(source, recorded(statistics("stats")));
  const Verification found = verify_conversion(plan, source, result, [](auto, auto) {});
  CHECK(found.passed());
  CHECK(found.computed > 0);
  CHECK_THAT(refusal_of([&] { recorded(nullptr); }), is_wrong_usage("--calibration FILE"));
  CHECK_THAT(refusal_of([&] { recorded(statistics("others")); }),
             is_wrong_usage("other statistics", statistics("others")->fingerprint()));
}

// Moves every query a little.
class Nudge : public AttentionRefiner {
 public:
  RefinementReport refine(AttentionRole, std::size_t, std::span<const std::int64_t>,
                          AttentionHeads& heads) override {
    heads.q.weight.front() += 0.5;
    return {};
  }
  std::string recipe() const override { return R"({"tokens":64,"learning_rate":0.1})"; }
  double training_token_equivalents(const ModelSpec&) const override { return 0.0; }
};

TEST_CASE("of refitted results all but the refitted tensors are verified", "[converter]") {
  const Model source = open_model(golden("llama_mha"));
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kLowrank}) {
    const TemporaryDirectory directory;
    ConversionRequest request = request_of(method, 3);
    request.kv_heads = {3, 6};  // the second layer has as many as before
    request.grouping = "similar";
    request.order = similar_grouping(source, request).order;
    request.refiner = std::make_shared<Nudge>();
    convert(golden("llama_mha"), directory / "result", request);
    const auto check = [&] {
      const Model result = open_model(directory / "result");
      const ConversionPlan plan =
          plan_conversion(source, recorded_request(source, result, nullptr));
      Verification found = verify_conversion(plan, source, result, [](auto, auto) {});
      return std::tuple(found.refitted, found.tensors.size(), found.settings.size());
    };
    const auto [refitted, tensors, settings] = check();
    const std::string attention = "model.layers.0.self_attn.";
    std::vector<std::string> expected;
    for (const char* part : {"k", "o", "q", "v"}) {
      expected.push_back(attention + part + "_proj.bias");
      expected.push_back(attention + part + "_proj.weight");
    }
    CHECK(refitted == expected);
    CHECK(tensors == 0);
    CHECK(settings == 0);
    const auto flip = [&](const std::string& tensor) {
      const TensorInfo info = open_checkpoint(directory / "result").at(tensor);
      std::string bytes = bytes_of_file(directory / "result" / "model.safetensors");
      bytes[info.begin] ^= 1;
      put_file(directory / "result" / "model.safetensors", bytes);
    };
    flip(attention + "q_proj.weight");  // which nobody can know
    CHECK(std::get<1>(check()) == 0);
    flip("model.layers.1.self_attn.q_proj.weight");
    flip("model.layers.0.mlp.up_proj.weight");
    CHECK(std::get<1>(check()) == 2);
    Json config = Json::parse(bytes_of_file(directory / "result" / "config.json"));
    config["regroup"]["refit"]["tokens"] = 65;
    put_file(directory / "result" / "config.json", config.dump());
    CHECK(std::get<2>(check()) == 1);  // the weight file says otherwise
  }
}

}  // namespace
}  // namespace regroup
