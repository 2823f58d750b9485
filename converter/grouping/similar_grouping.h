// Finds the head order in which groups of neighbours lose least.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// The losses of one layer in that order and in the source's: see SimilarHeads.
struct LayerGrouping {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  double loss = 0.0;
  double contiguous_loss = 0.0;
};

struct SimilarGrouping {
  HeadOrder order;
  std::vector<LayerGrouping> layers;  ///< those that were solved
};

/// Whether every pooled layer keeps a single kv head: then all groupings are the same.
bool allows_one_grouping(const ConversionPlan& plan);

/// `contiguous` is the plan of the same conversion without an order. Solves for every layer that
/// gets fewer kv heads, but more than one, and may move them; layers that move together are solved
/// together, see find_shared_head_order(). Reads the weights of one layer at a time. Calls
/// `progress`, unless it is empty, with the number of layers done. Throws as AttentionPooler does.
SimilarGrouping find_similar_grouping(const ConversionPlan& contiguous,
                                      const Checkpoint& checkpoint,
                                      const std::function<void(std::int64_t)>& progress,
                                      const std::atomic<bool>& stop);

}  // namespace regroup
