// Conversions that tests damage and verify.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "converter/convert/verify_conversion.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {

// A verification result without references to the models, which are destroyed here.
inline Verification verified(const std::filesystem::path& source_path,
                             const std::filesystem::path& result_path) {
  const Model source = open_model(source_path);
  const Model result = open_model(result_path);
  const ConversionPlan plan = plan_conversion(source, recorded_request(source, result, nullptr));
  Verification found = verify_conversion(plan, source, result, {});
  for (TensorDifference& difference : found.tensors) {
    difference.after = nullptr;
  }
  return found;
}

// A request for 4 of 12 heads in groups that are not contiguous in any layer.
inline ConversionRequest reordered() {
  ConversionRequest request{.kv_heads = {4}, .grouping = "similar"};
  request.order.set(AttentionRole::kSelf, 0, {4, 1, 11, 0, 3, 2, 5, 10, 7, 8, 9, 6});
  request.order.set(AttentionRole::kSelf, 1, {11, 10, 9, 0, 1, 2, 8, 4, 7, 6, 3, 5});
  return request;
}

// A conversion of BLOOM that tests damage.
struct Converted {
  TemporaryDirectory directory;
  std::filesystem::path source = put_model(directory / "source", tiny_bloom());
  std::filesystem::path result = directory / "result";
  std::filesystem::path weights = result / "model.safetensors";

  explicit Converted(const ConversionRequest& request = {.kv_heads = {4}}) {
    convert(source, result, request);
  }

  // Changes the bytes of one tensor.
  void damage(const std::string& tensor, const std::function<void(std::string&)>& change) const {
    const Checkpoint checkpoint = open_checkpoint(result);
    const TensorInfo& info = checkpoint.at(tensor);
    std::string file = bytes_of_file(weights);
    std::string bytes = file.substr(info.begin, info.end - info.begin);
    change(bytes);
    put_file(weights, file.replace(info.begin, bytes.size(), bytes));
  }

  void change_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(bytes_of_file(result / "config.json"));
    change(config);
    put_file(result / "config.json", config.dump(2));
  }

  Json record() const { return Json::parse(bytes_of_file(result / "config.json")).at("regroup"); }

  std::vector<std::string> wrong_tensors() const {
    std::vector<std::string> names;
    for (const TensorDifference& difference : verified(source, result).tensors) {
      names.push_back(difference.name);
    }
    return names;
  }

  std::vector<std::string> wrong_settings() const {
    std::vector<std::string> paths;
    for (const JsonDifference& difference : verified(source, result).settings) {
      paths.push_back(difference.path);
    }
    return paths;
  }
};

}  // namespace regroup
