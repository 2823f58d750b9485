#include "converter/convert/verify_conversion.h"

#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converter/convert/execute_plan.h"
#include "converter/convert/tensor_parts.h"
#include "formats/base/callback.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/conversion_record.h"
#include "formats/model/record_words.h"
#include "formats/version.h"

namespace regroup {
namespace {

TensorInfo info_of(const OutputTensor& output) {
  return {output.name, output.dtype, output.shape, 0, 0, tensor_bytes(output.dtype, output.shape)};
}

class Verifier {
 public:
  Verifier(const ConversionPlan& plan, const Model& source, const Model& result)
      : plan_(plan),
        source_(source.checkpoint),
        result_(result.checkpoint),
        pooler_(plan, source.checkpoint),
        checksums_(record_of(result).checksums.value.value_or(TensorChecksums())) {}

  void compare(const TensorStep& step) {
    const TensorInfo& expected = found_.expected.emplace_back(info_of(step.output));
    const TensorInfo* is = result_.find(expected.name);
    TensorDifference difference{expected.name, &expected, is, std::nullopt};
    const bool alike = is != nullptr && is->shape == expected.shape && is->dtype == expected.dtype;
    const bool same = has_checksum(plan_, step)
                          ? compare_trained(expected, alike ? is : nullptr)
                          : compare_made(step, alike ? is : nullptr, difference);
    if (same) {
      found_.expected.pop_back();
    } else {
      found_.tensors.push_back(std::move(difference));
    }
  }

  // Finds tensors that neither the plan nor a checksum covers.
  void find_strangers() {
    std::unordered_set<std::string> planned;
    for (const TensorStep& step : plan_.steps) {
      planned.insert(step.output.name);
    }
    for (const TensorInfo& tensor : result_.tensors()) {
      if (!planned.contains(tensor.name)) {
        found_.tensors.push_back({tensor.name, nullptr, &tensor, std::nullopt});
      }
    }
    for (const auto& [name, checksum] : checksums_) {
      if (!contains(found_.trained, name)) {
        found_.settings.push_back({path_of_checksum(name), std::nullopt, Json(checksum)});
      }
    }
  }

  Verification& found() { return found_; }

 private:
  static std::string path_of_checksum(const std::string& tensor) {
    return fmt::format("{}{}.{}", kRecordPrefix, ConversionRecord().checksums.key, tensor);
  }

  // Compares a tensor that is not computed again with its checksum; a missing one is a difference
  // of the settings. `is` is null if its shape or dtype already differs.
  bool compare_trained(const TensorInfo& expected, const TensorInfo* is) {
    found_.trained.push_back(expected.name);
    const auto recorded = checksums_.find(expected.name);
    if (recorded == checksums_.end()) {
      found_.settings.push_back(
          {path_of_checksum(expected.name), Json("a checksum"), std::nullopt});
      return is != nullptr;
    }
    found_.bytes += expected.bytes();
    const bool same = is != nullptr && stored_checksum(result_, *is) == recorded->second;
    found_.trained_differing += same ? 0 : 1;
    return same;
  }

  // The same for a copied or recomputed tensor.
  bool compare_made(const TensorStep& step, const TensorInfo* is, TensorDifference& difference) {
    (step.unchanged() ? found_.copied : found_.computed) += 1;
    found_.bytes += difference.before->bytes();
    if (is != nullptr) {
      difference.values = compare_values(step, *is);
      if (difference.values->same_bytes) {
        return true;
      }
    }
    (step.unchanged() ? found_.copied_differing : found_.computed_differing) += 1;
    return false;
  }

  TensorComparison compare_values(const TensorStep& step, const TensorInfo& is) {
    const TensorReader reader(result_, is);
    if (step.unchanged()) {
      return compare_tensors(TensorReader(source_, source_.at(step.copy_of)), reader);
    }
    return compare_tensors(is.dtype, make_tensor(step, plan_, source_, pooler_), reader);
  }

  const ConversionPlan& plan_;
  const Checkpoint& source_;
  const Checkpoint& result_;
  AttentionPooler pooler_;
  TensorChecksums checksums_;
  Verification found_;
};

std::string path_of(std::string_view key) { return std::string(kRecordPrefix) + std::string(key); }

// Removes the facts that are compared separately: measurements, checksums, and the version,
// fingerprint and history (see compare_origin()).
Json without_remarks(Json config) {
  const ConversionRecord keys;
  if (config.contains(kRecordKey) && config[kRecordKey].is_object()) {
    for (const std::string_view key :
         {keys.version.key, keys.layers.key, keys.held_out.key, keys.distilled.key,
          keys.checksums.key, keys.history.key, keys.source_fingerprint.key}) {
      config[kRecordKey].erase(std::string(key));
    }
  }
  for (const std::string_view key :
       {keys.version.key, keys.checksums.key, keys.history.key, keys.source_fingerprint.key}) {
    config.erase(path_of(key));
  }
  return config;
}

// The same for a GGUF file, which may contain a config. What describes the model to people (its
// name, license, size) depends on the source's folder and card, which may have changed since.
Json without_remarks(const GgufMetadata& metadata) {
  Json settings = without_remarks(json_of(metadata));
  for (auto key = settings.begin(); key != settings.end();) {
    const bool describes = key.key().starts_with("general.") &&
                           key.key() != "general.architecture" &&
                           key.key() != "general.file_type" && key.key() != "general.alignment";
    key = describes ? settings.erase(key) : std::next(key);
  }
  const auto quoted = settings.find(kSourceConfigKey);
  if (quoted != settings.end() && quoted->is_string()) {
    const Json config = Json::parse(quoted->get_ref<const std::string&>(), nullptr, false);
    *quoted = config.is_discarded() ? *quoted : without_remarks(config);
  }
  return settings;
}

// Compares the recorded history with the source's, and says what it is. Earlier versions recorded
// none.
void compare_history(Verification& found, const Json& expected, const Fact<Json>& history) {
  if (expected.empty()) {
    return;
  }
  std::vector<std::string> steps;
  for (const Json& step : expected) {
    steps.push_back(text_of_step(step));
  }
  const std::string before = fmt::format("{}", fmt::join(steps, "; then "));
  if (!history.recorded()) {
    found.remarks.push_back(
        fmt::format("the result does not record what its source went through: {}", before));
    return;
  }
  found.remarks.push_back(
      fmt::format("only the last step is verified, not those before: {}", before));
  // In any order of keys.
  if (nlohmann::json(history.stored) != nlohmann::json(expected)) {
    found.settings.push_back({path_of(history.key), expected, history.stored});
  }
}

// Compares the recorded source and version, which a safetensors result stores in two places.
void compare_origin(Verification& found, const ConversionPlan& plan, const Model& result) {
  const ConversionRecord record = record_of(result);
  if (record.facts().is_null()) {
    return;
  }
  if (const auto& recorded = record.source_fingerprint; !recorded.recorded()) {
    found.remarks.push_back(
        "the result records no fingerprint of its source: only its tensors show whether it was "
        "made from this one");
  } else if (recorded.value != plan.source_fingerprint) {
    found.settings.push_back(
        {path_of(recorded.key), Json(plan.source_fingerprint), recorded.stored});
    found.remarks.push_back(
        "the result records another source than this one: another model, or one whose config or "
        "weights have changed since");
  }
  if (record.version.value != kVersion) {
    found.remarks.push_back(fmt::format(
        "the result was written by regroup {} and verified by {}, which may explain differences",
        printable(record.version.value.value_or("")), kVersion));
  }
  if (result.convention == Convention::kHuggingFace &&
      result.checkpoint.files().front().path().extension() == ".safetensors") {
    const auto stated = ConversionRecord::in_metadata(result.checkpoint.metadata());
    const auto compare = [&](const auto& before, const auto& after) {
      if (before.stored != after.stored) {
        found.settings.push_back(
            {"__metadata__." + path_of(before.key), before.stored, after.stored});
      }
    };
    compare(record.version, stated.version);
    compare(record.source_fingerprint, stated.source_fingerprint);
    compare(record.history, stated.history);
  }
}

std::vector<JsonDifference> compare_settings(const ConversionPlan& plan, const Model& result) {
  if (plan.gguf && result.gguf) {
    return differences_between(without_remarks(*plan.gguf), without_remarks(*result.gguf));
  }
  std::vector<JsonDifference> found;
  if (!plan.config_text.empty()) {
    const Json config = parse_json_object(plan.config_text, "config.json");
    found = differences_between(without_remarks(config), without_remarks(result.config));
  }
  if (result.checkpoint.files().front().path().extension() == ".safetensors") {
    Json metadata(plan.metadata);
    metadata["format"] = "pt";  // SafetensorsWriter adds it to every file
    append(found, differences_between(without_remarks(metadata),
                                      without_remarks(Json(result.checkpoint.metadata())),
                                      "__metadata__"));
  }
  return found;
}

// Compares the code that the result carries with this version's.
void compare_loader_files(Verification& found, const ConversionPlan& plan, const Model& result) {
  for (const LoaderFile& file : plan.loader_files) {
    const std::filesystem::path path = result.path / file.name;
    const bool exists = path_exists(path);
    if (!exists || read_text(path, kMaxConfigBytes) != file.text) {
      found.settings.push_back({std::string(file.name), Json("the code of regroup"),
                                exists ? std::optional(Json("other code")) : std::nullopt});
    }
  }
}

}  // namespace

Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress) {
  Verifier verifier(plan, source, result);
  for (const TensorStep& step : plan.steps) {
    verifier.compare(step);
    call_if_given(progress, verifier.found().bytes, step.output.name);
  }
  verifier.find_strangers();
  Verification found = std::move(verifier.found());
  const std::vector<JsonDifference> settings = compare_settings(plan, result);
  found.settings.insert(found.settings.begin(), settings.begin(), settings.end());
  compare_origin(found, plan, result);
  compare_history(found, record_of(source).steps(), record_of(result).history);
  compare_loader_files(found, plan, result);
  return found;
}

}  // namespace regroup
