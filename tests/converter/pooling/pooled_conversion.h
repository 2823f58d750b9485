// Requests and measurements for tests of pooled conversions.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/similar_grouping.h"
#include "tests/checkpoint_builder.h"

namespace regroup {

/// A request for `kv_heads` in every layer with the given method.
inline ConversionRequest request_of(PoolMethod method, std::int64_t kv_heads) {
  ConversionRequest request;
  request.kv_heads = {kv_heads};
  request.pooling = {method, 0};
  return request;
}

/// The loss of a layer's keys and values.
inline double loss_of(const LayerReport& layer) {
  double loss = 0.0;
  for (const GroupReport& group : layer.groups) {
    loss += group.key_share * (1 - group.key_energy) + group.value_share * (1 - group.value_energy);
  }
  return loss;
}

/// The order that --grouping similar finds.
inline SimilarGrouping similar_grouping(const Model& source, const ConversionRequest& request) {
  const std::atomic<bool> stop{false};
  return find_similar_grouping(plan_conversion(source, request), source.checkpoint, {}, stop);
}

/// Metadata of statistics over 100 tokens of the model with this fingerprint.
inline std::map<std::string, std::string> statistics_of(const std::string& fingerprint) {
  return {{kCalibrationFormatKey, kCalibrationFormat},
          {kCalibrationSourceKey, fingerprint},
          {kCalibrationTokensKey, "100"}};
}

/// Statistics of a decoder with `first` as the second moment of the first input. With RoPE, all
/// heads attend equally to two distances.
inline void put_statistics(const std::filesystem::path& path, const Model& source, double first) {
  std::vector<BuiltTensor> tensors;
  const std::int64_t width = source.spec.hidden_size, heads = source.spec.query_heads;
  for (std::size_t i = 0; i < source.spec.layers.size(); ++i) {
    std::vector<double> covariance(static_cast<std::size_t>(width * width), 0.0);
    for (std::size_t row = 0; row < static_cast<std::size_t>(width); ++row) {
      covariance[row * static_cast<std::size_t>(width + 1)] = row == 0 ? first : 1.0;
    }
    const std::string name = moments_name(AttentionRole::kSelf, i, InputSide::kQueries);
    tensors.push_back(varied_tensor(name + ".mean", DType::kF32, {width}));
    tensors.push_back(tensor_of(name + ".covariance", DType::kF32, {width, width}, covariance));
    if (has_distances(source.spec, AttentionRole::kSelf, i)) {
      tensors.push_back(tensor_of(distances_name(AttentionRole::kSelf, i), DType::kF32, {heads, 2},
                                  std::vector<double>(static_cast<std::size_t>(2 * heads), 0.5)));
    }
  }
  put_checkpoint(path, tensors, statistics_of(fingerprint_of(source)));
}

}  // namespace regroup
