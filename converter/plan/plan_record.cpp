#include "converter/plan/plan_record.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "converter/provenance/provenance.h"
#include "converter/target/recorded_target.h"

namespace regroup {
namespace {

Provenance provenance_of(const ConversionPlan& plan, const Model& source, const ModelSpec& target) {
  Provenance facts{plan.spec,     plan.grouped, target, std::string(name_of(plan.pooling.method)),
                   plan.grouping, plan.order};
  facts.history = record_of(source).steps();
  facts.more.emplace_back(kSourceFingerprintKey, Json(plan.source_fingerprint).dump());
  if (plan.pooling.method == PoolMethod::kRandom) {
    facts.more.emplace_back("pool_seed", std::to_string(plan.pooling.seed));
  }
  if (plan.pooling.solves_elsewhere()) {
    facts.more.emplace_back("pool_device", Json(plan.pooling.device_kind()).dump());
  }
  if (plan.dtype) {
    facts.more.emplace_back("dtype", Json(name_of(*plan.dtype)).dump());
  }
  if (plan.refiner) {
    facts.more.emplace_back("refit", plan.refiner->recipe());
  }
  if (!plan.pooling.distillation.empty()) {
    facts.more.emplace_back(kDistillKey, plan.pooling.distillation);
  }
  if (const auto& discarded = plan.pooling.discarded_statistics;
      discarded && needs_solver(plan.pooling.method)) {
    facts.more.emplace_back("calibration_tokens", discarded->tokens);
    facts.more.emplace_back("calibration", discarded->fingerprint);
    facts.more.emplace_back(kCalibrationKeptKey, "false");
  } else if (plan.calibration && needs_solver(plan.pooling.method)) {
    facts.more.emplace_back("calibration_tokens", plan.calibration->tokens());
    facts.more.emplace_back("calibration", Json(plan.calibration->fingerprint()).dump());
  }
  return facts;
}

// The type of most matrices, by its number in llama.cpp's enumeration of file types.
std::uint32_t gguf_file_type(const ConversionPlan& plan) {
  std::map<DType, std::int64_t> matrices;
  for (const TensorStep& step : plan.steps) {
    matrices[step.output.dtype] += step.output.shape.size() >= 2 ? 1 : 0;
  }
  const auto most = std::max_element(matrices.begin(), matrices.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  switch (most == matrices.end() ? DType::kF32 : most->first) {
    case DType::kF16: return 1;
    case DType::kQ8_0: return 7;
    case DType::kBF16: return 32;
    default: return 0;
  }
}

// Removes the record of an earlier conversion, but keeps that of the file's origin.
void forget_conversion(GgufMetadata& metadata) {
  std::vector<std::string> keys;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (is_conversion_fact(entry.key)) {
      keys.push_back(entry.key);
    }
  }
  for (const std::string& key : keys) {
    metadata.remove(key);
  }
}

// The metadata of a GGUF file, including that of the directory it was made from.
GgufMetadata gguf_with_provenance(GgufMetadata metadata, const Model& source,
                                  const ConversionPlan& plan) {
  forget_conversion(metadata);
  for (const auto& [key, value] : plan.metadata) {
    if (is_conversion_fact(key)) {
      metadata.set_string(key, value);
    }
  }
  if (source.convention == Convention::kHuggingFace) {
    const Provenance own = provenance_of(plan, source, plan.grouped);
    record_source(metadata, source, config_with_provenance(source.config_text, own));
  }
  if (!metadata.contains("general.file_type")) {
    metadata.set_u32("general.file_type", gguf_file_type(plan));
  }
  return metadata;
}

}  // namespace

void add_record(ConversionPlan& plan, const Model& source, Target& target) {
  const Provenance facts = provenance_of(plan, source, plan.target);
  plan.metadata = metadata_with_provenance(source.checkpoint.metadata(), facts);
  if (!is_single_file(plan.container)) {
    plan.config_text = config_with_provenance(target.config_text, facts);
  } else if (plan.container == Container::kGguf) {
    plan.gguf = gguf_with_provenance(std::move(*target.gguf), source, plan);
  }
}

}  // namespace regroup
