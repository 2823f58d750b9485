// Verification of results with computed, reordered or refitted heads.
#include <algorithm>
#include <functional>
#include <memory>
#include <span>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include "converter/convert/verify_conversion.h"
#include "formats/base/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/converter/pooling/pooled_conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

TEST_CASE("computed heads are verified and a flipped bit is detected", "[converter]") {
  const Model source = open_model(golden("llama_mha"));
  const TemporaryDirectory directory;
  const auto path = directory / "result";
  convert(golden("llama_mha"), path, request_of(PoolMethod::kLowrank, 3));
  const auto wrong_tensors = [&] {
    const Model result = open_model(path);
    const ConversionPlan plan = plan_conversion(source, recorded_request(source, result, nullptr));
    return verify_conversion(plan, source, result, {}).tensors.size();
  };
  CHECK(wrong_tensors() == 0);
  const Checkpoint checkpoint = open_checkpoint(path);
  std::string bytes = bytes_of_file(path / "model.safetensors");
  bytes[checkpoint.at("model.layers.1.self_attn.v_proj.weight").begin + 1] ^= 1;
  put_file(path / "model.safetensors", bytes);
  CHECK(wrong_tensors() == 1);
}

TEST_CASE("calibrated results with reordered heads are verified only with their statistics",
          "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(golden("gpt2"));
  put_statistics(directory / "stats", source, 9.0);
  put_statistics(directory / "others", source, 8.0);  // with the same number of tokens
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
  const Verification found = verify_conversion(plan, source, result, {});
  CHECK(found.passed());
  CHECK(found.computed > 0);
  CHECK_THAT(refusal_of([&] { recorded(nullptr); }), is_wrong_usage("--calibration FILE"));
  CHECK_THAT(refusal_of([&] { recorded(statistics("others")); }),
             is_wrong_usage("other statistics", statistics("others")->fingerprint()));
}

// Changes every query slightly.
class Nudge : public AttentionRefiner {
 public:
  RefinementReport refine(AttentionRole, std::size_t, std::span<const std::int64_t>,
                          AttentionHeads& heads) override {
    heads.q.weight.front() += 0.5;
    return {};
  }
  Recipe recipe() const override { return {.tokens = 64U, .learning_rate = 0.1}; }
  double training_token_equivalents(const ModelSpec&) const override { return 0.0; }
};

// llama_mha, refitted to 3 kv heads in its first layer; the second keeps its 6.
class RefittedFirstLayer {
 public:
  explicit RefittedFirstLayer(PoolMethod method) {
    ConversionRequest request = request_of(method, 3);
    request.kv_heads = {3, 6};
    request.grouping = "similar";
    request.order = similar_grouping(source_, request).order;
    request.refiner = std::make_shared<Nudge>();
    convert(golden("llama_mha"), result_, request);
  }

  Verification verified() const {
    const Model result = open_model(result_);
    const ConversionPlan plan =
        plan_conversion(source_, recorded_request(source_, result, nullptr));
    return verify_conversion(plan, source_, result, {});
  }

  void flip_bit_of(const std::string& tensor) const {
    const TensorInfo info = open_checkpoint(result_).at(tensor);
    std::string bytes = bytes_of_file(result_ / "model.safetensors");
    bytes[info.begin] ^= 1;
    put_file(result_ / "model.safetensors", bytes);
  }

  void change_refit_tokens() const {
    Json config = Json::parse(bytes_of_file(result_ / "config.json"));
    config["regroup"]["refit"]["tokens"] = 65;
    put_file(result_ / "config.json", config.dump());
  }

 private:
  const TemporaryDirectory directory_;
  const std::filesystem::path result_ = directory_ / "result";
  const Model source_ = open_model(golden("llama_mha"));
};

TEST_CASE("refitted tensors are verified by their recorded checksums", "[converter]") {
  const RefittedFirstLayer converted(GENERATE(PoolMethod::kMean, PoolMethod::kLowrank));
  const Verification found = converted.verified();
  std::vector<std::string> expected;
  for (const char* part : {"k", "o", "q", "v"}) {
    const std::string projection = fmt::format("model.layers.0.self_attn.{}_proj.", part);
    expected.push_back(projection + "bias");
    expected.push_back(projection + "weight");
  }
  CHECK(found.trained == expected);
  CHECK(found.tensors.empty());
  CHECK(found.settings.empty());
}

TEST_CASE("a flipped bit of a refitted tensor or another one is detected", "[converter]") {
  const RefittedFirstLayer converted(GENERATE(PoolMethod::kMean, PoolMethod::kLowrank));
  converted.flip_bit_of("model.layers.0.self_attn.q_proj.weight");
  CHECK(converted.verified().tensors.size() == 1);
  converted.flip_bit_of("model.layers.1.self_attn.q_proj.weight");
  converted.flip_bit_of("model.layers.0.mlp.up_proj.weight");
  const Verification found = converted.verified();
  CHECK(found.tensors.size() == 3);
  CHECK(found.settings.empty());
}

TEST_CASE("a record of refitting that differs from the weight file's is detected", "[converter]") {
  const RefittedFirstLayer converted(GENERATE(PoolMethod::kMean, PoolMethod::kLowrank));
  converted.change_refit_tokens();
  const Verification found = converted.verified();
  CHECK(found.settings.size() == 1);  // the weight file's metadata differ
  CHECK(found.tensors.empty());
}

// A refitted result in the given container. 8 of its tensors were refitted.
struct Refitted {
  TemporaryDirectory directory;
  Model source = open_model(golden("llama_mha"));
  std::filesystem::path path = directory / "result";

  explicit Refitted(Container container = Container::kSafetensors) {
    ConversionRequest request = request_of(PoolMethod::kMean, 3);
    request.kv_heads = {3, 6};
    request.container = container;
    request.refiner = std::make_shared<Nudge>();
    convert(golden("llama_mha"), path, request);
  }

  Verification verified() const {
    const Model result = open_model(path);
    Verification found = verify_conversion(
        plan_conversion(source, recorded_request(source, result, nullptr)), source, result, {});
    // The tensors belong to a model that is destroyed here.
    for (TensorDifference& difference : found.tensors) {
      difference.after = nullptr;
    }
    return found;
  }

  void change_checksums(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(bytes_of_file(path / "config.json"));
    change(config["regroup"]["checksums"]);
    put_file(path / "config.json", config.dump(2));
  }
};

TEST_CASE("refitted keys and values replaced by noise are detected in every container",
          "[converter]") {
  const auto container = GENERATE(Container::kSafetensors, Container::kTorch, Container::kGguf);
  const Refitted result(container);
  const Verification right = result.verified();
  CHECK(right.passed());
  REQUIRE(right.trained.size() > 0);
  std::vector<std::string> changed;
  for (const std::string& tensor : right.trained) {
    const bool key_or_value = tensor.find("k_proj.weight") != std::string::npos ||
                              tensor.find("v_proj.weight") != std::string::npos ||
                              tensor.find("attn_k.weight") != std::string::npos ||
                              tensor.find("attn_v.weight") != std::string::npos;
    if (!key_or_value) {
      continue;
    }
    changed.push_back(tensor);
    const Model model = open_model(result.path);
    const TensorInfo& info = model.checkpoint.at(tensor);
    const std::filesystem::path file = model.checkpoint.file_of(info).path();
    std::string bytes = bytes_of_file(file);
    for (std::uint64_t i = info.begin; i < info.end; i += 4) {
      bytes[i] = static_cast<char>(bytes[i] + 5 * i + 1);
    }
    put_file(file, bytes);
  }
  REQUIRE(changed.size() == 2);
  const Verification found = result.verified();
  std::vector<std::string> wrong;
  for (const TensorDifference& difference : found.tensors) {
    wrong.push_back(difference.name);
  }
  std::sort(wrong.begin(), wrong.end());
  CHECK(wrong == changed);
  CHECK(found.trained_differing == 2);
  CHECK_FALSE(found.passed());
}

TEST_CASE("refitted tensors without any checksum do not pass", "[converter]") {
  const Refitted result;
  Json config = Json::parse(bytes_of_file(result.path / "config.json"));
  config["regroup"].erase("checksums");
  put_file(result.path / "config.json", config.dump(2));
  const Verification found = result.verified();
  CHECK_FALSE(found.passed());
  CHECK(found.settings.size() == 8);
  CHECK(found.tensors.empty());
}

TEST_CASE("a result that claims to be solved on a GPU does not pass without checksums",
          "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(golden("llama_mha"));
  convert(golden("llama_mha"), directory / "result", request_of(PoolMethod::kLowrank, 3));
  Json config = Json::parse(bytes_of_file(directory / "result" / "config.json"));
  const auto found_with = [&](const Json& device) {
    config["regroup"]["pool_device"] = device;
    put_file(directory / "result" / "config.json", config.dump(2));
    const Model result = open_model(directory / "result");
    return verify_conversion(plan_conversion(source, recorded_request(source, result, nullptr)),
                             source, result, {});
  };
  const Verification found = found_with("cuda");
  CHECK_FALSE(found.passed());
  CHECK(found.settings.size() > found.trained.size());  // the weight file's metadata differ, too
  CHECK(found.trained.size() == 16);
  CHECK_THAT(refusal_of([&] { found_with(5); }), is_bad_input("pool_device"));
  CHECK_THAT(refusal_of([&] { found_with("a GPU"); }), is_bad_input("pool_device"));
}

TEST_CASE("missing and additional checksums are detected", "[converter]") {
  const Refitted result;
  const std::string key = "model.layers.0.self_attn.k_proj.weight";
  const std::string path = "regroup.checksums.";
  const auto wrong_settings = [&] {
    std::vector<std::string> paths;
    for (const JsonDifference& difference : result.verified().settings) {
      paths.push_back(difference.path);
    }
    return paths;
  };
  SECTION("one is missing") {
    result.change_checksums([&](Json& checksums) { checksums.erase(key); });
    CHECK(wrong_settings() == std::vector{path + key});
  }
  SECTION("one of a tensor that was not refitted") {
    result.change_checksums(
        [&](Json& checksums) { checksums["model.norm.weight"] = "0123456789abcdef"; });
    CHECK(wrong_settings() == std::vector{path + "model.norm.weight"});
  }
  SECTION("all are missing") {
    result.change_checksums([&](Json& checksums) { checksums[key] = "sixteen letters!"; });
    CHECK_THAT(refusal_of([&] { result.verified(); }), is_bad_input("checksums", "16 hexadecimal"));
  }
}

}  // namespace
}  // namespace regroup
