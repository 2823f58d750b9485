#include "converter/verify_conversion.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "converter/execute_plan.h"
#include "converter/provenance.h"
#include "formats/printable.h"

namespace regroup {
namespace {

TensorInfo info_of(const OutputTensor& output) {
  return {output.name, output.dtype, output.shape, 0, 0, tensor_bytes(output.dtype, output.shape)};
}

bool comes_from_pooled(const TensorStep& step) {
  const auto any = [](const std::vector<HeadMove>& moves) {
    return std::any_of(moves.begin(), moves.end(),
                       [](const HeadMove& move) { return move.pooled.has_value(); });
  };
  return any(step.moves) || (step.fold && any(step.fold->weight_moves));
}

class Verifier {
 public:
  Verifier(const ConversionPlan& plan, const Model& source, const Model& result)
      : plan_(plan),
        source_(source.checkpoint),
        result_(result.checkpoint),
        pooler_(pooler_of(plan, source.checkpoint)) {}

  void compare(const TensorStep& step) {
    const TensorInfo& expected = found_.expected.emplace_back(info_of(step.output));
    const TensorInfo* is = result_.find(expected.name);
    TensorDifference difference{expected.name, &expected, is, std::nullopt};
    const bool refitted = plan_.refiner && comes_from_pooled(step);
    if (refitted) {
      found_.refitted.push_back(expected.name);
    } else {
      (step.unchanged() ? found_.copied : found_.computed) += 1;
      found_.bytes += expected.bytes();
    }
    if (is != nullptr && is->shape == expected.shape && is->dtype == expected.dtype) {
      if (!refitted) {
        difference.values = compare_values(step, *is);
      }
      if (refitted || difference.values->same_bytes) {
        found_.expected.pop_back();
        return;
      }
    }
    if (!refitted) {
      (step.unchanged() ? found_.copied_differing : found_.computed_differing) += 1;
    }
    found_.tensors.push_back(std::move(difference));
  }

  // What nothing in the plan makes.
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
  }

  Verification& found() { return found_; }

 private:
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
  Verification found_;
};

// Without what does not tell whether a result is right: the version, since another one makes the
// same of a model or is caught by what it makes, what was measured while pooling, and the source's
// fingerprint, since a copy of the source with other spaces in its config is as good.
Json without_remarks(Json config) {
  if (config.contains("regroup") && config["regroup"].is_object()) {
    config["regroup"].erase("version");
    config["regroup"].erase("layers");
    config["regroup"].erase(kSourceFingerprintKey);
  }
  config.erase("regroup.version");
  config.erase(std::string("regroup.") + kSourceFingerprintKey);
  return config;
}

std::vector<JsonDifference> compare_settings(const ConversionPlan& plan, const Model& result) {
  if (plan.gguf && result.gguf) {
    return differences_between(without_remarks(json_of(*plan.gguf)),
                               without_remarks(json_of(*result.gguf)));
  }
  std::vector<JsonDifference> found;
  if (!plan.config_text.empty()) {
    const Json config = parse_json_object(plan.config_text, "config.json");
    found = differences_between(without_remarks(config), without_remarks(result.config));
  }
  if (result.checkpoint.files().front().path().extension() == ".safetensors") {
    Json metadata(plan.metadata);
    metadata["format"] = "pt";  // as every file is written
    for (JsonDifference& difference :
         differences_between(without_remarks(metadata),
                             without_remarks(Json(result.checkpoint.metadata())), "__metadata__")) {
      found.push_back(std::move(difference));
    }
  }
  return found;
}

}  // namespace

Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress) {
  Verifier verifier(plan, source, result);
  for (const TensorStep& step : plan.steps) {
    verifier.compare(step);
    progress(verifier.found().bytes, step.output.name);
  }
  verifier.find_strangers();
  Verification found = std::move(verifier.found());
  found.settings = compare_settings(plan, result);
  return found;
}

}  // namespace regroup
