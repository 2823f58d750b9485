// Verification of conversions whose heads were computed, moved or refitted.
#include <memory>
#include <span>
#include <tuple>

#include <catch2/catch_test_macros.hpp>

#include "converter/recorded_request.h"
#include "converter/verify_conversion.h"
#include "formats/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/converter/pooling/pooled_conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

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
