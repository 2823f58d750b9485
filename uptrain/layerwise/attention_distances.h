// Measures the distances between queries and the keys that a causal attention attends to.
//
// Shapes: B sequences of T positions, H query heads.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// How scores are made of q·k.
struct ScoreSettings {
  std::optional<double> scale, softcap;  ///< as in ModelSpec
};

class AttentionDistances {
 public:
  /// Counts distances below `most`.
  explicit AttentionDistances(std::int64_t most) : most_(most) {}

  /// Adds the attention of B·T queries, as attend() computes it, or attend_in_window().
  void add(const Heads& heads, const at::Tensor& mask, std::optional<std::int64_t> window,
           const ScoreSettings& scores);

  bool any() const { return sums_.defined(); }

  /// The fraction of the attention at each distance, in double on the device of the heads: [H, T],
  /// at most `most` distances; rows sum to 1.
  at::Tensor shares() const;

 private:
  std::int64_t most_;
  at::Tensor sums_;  ///< [H, T]
};

}  // namespace regroup
