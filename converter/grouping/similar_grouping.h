// The order of heads in which those that lose least together are neighbours.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// What one layer loses with its heads in that order and in the source's: see SimilarHeads.
struct LayerGrouping {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  double loss = 0.0;
  double contiguous_loss = 0.0;
};

struct SimilarGrouping {
  HeadOrder order;
  std::vector<LayerGrouping> layers;  ///< those that were looked at
};

/// Whether every layer that gets fewer kv heads keeps one: then all groupings are the same.
bool allows_one_grouping(const ConversionPlan& plan);

/// Solves for every layer of `contiguous`, the plan of the same conversion without an order, that
/// gets fewer kv heads, more than one, and may move them; for layers in step at once, see
/// find_shared_head_order(). Reads the weights of one layer at a time. `progress` is told how many
/// layers are done. Throws as AttentionPooler does.
SimilarGrouping find_similar_grouping(const ConversionPlan& contiguous,
                                      const Checkpoint& checkpoint,
                                      const std::function<void(std::int64_t)>& progress,
                                      const std::atomic<bool>& stop);

}  // namespace regroup
