// What tests of pooled conversions ask for and look at.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "converter/conversion_plan.h"
#include "converter/similar_grouping.h"

namespace regroup {

/// So many kv heads in every layer, by that method.
inline ConversionRequest request_of(PoolMethod method, std::int64_t kv_heads) {
  ConversionRequest request;
  request.kv_heads = {kv_heads};
  request.pooling = {method, 0};
  return request;
}

/// What a layer loses of its keys and values.
inline double loss_of(const LayerReport& layer) {
  double loss = 0.0;
  for (const GroupReport& group : layer.groups) {
    loss += group.key_share * (1 - group.key_energy) + group.value_share * (1 - group.value_energy);
  }
  return loss;
}

/// The order that --grouping similar would find.
inline SimilarGrouping similar_grouping(const Model& source, const ConversionRequest& request) {
  const std::atomic<bool> stop{false};
  return find_similar_grouping(
      plan_conversion(source, request), source.checkpoint, [](auto) {}, stop);
}

/// Metadata of statistics of 100 tokens of the model with that fingerprint.
inline std::map<std::string, std::string> statistics_of(const std::string& fingerprint) {
  return {{kCalibrationFormatKey, kCalibrationFormat},
          {kCalibrationSourceKey, fingerprint},
          {kCalibrationTokensKey, "100"}};
}

}  // namespace regroup
