// Groups of similar heads, and the order of heads that makes them neighbours.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "converter/convert/conversion_plan.h"
#include "converter/heads/heads.h"

namespace regroup {

// One head order for several layers that can only move their heads together.

/// Computes the loss of each group of heads in one layer. `layer` counts the layers that share the
/// order, from 0.
using LayerLosses =
    std::function<std::vector<double>(std::size_t layer, const std::vector<HeadGroup>& groups)>;

/// A head order with its losses per layer, and those of the present order.
struct SharedHeadOrder {
  std::vector<std::int64_t> order;  ///< the head at each place
  std::vector<double> losses;
  std::vector<double> contiguous_losses;
};

/// Finds an order of `heads` heads with a small sum of losses over all layers, at most that of
/// contiguous groups. Layer i gets groups[i] groups, a divisor of `heads`. Every layer has the same
/// weight: losses are fractions of its own energy, and energies of different layers are not
/// comparable. Layers with the most groups are solved first, by similar_partition(). Layers with
/// fewer groups then merge these groups if their number divides them, and otherwise take contiguous
/// groups of the order.
///
/// Requests the losses of many groups of one layer at a time, about equally often for each layer:
/// once for groups of two heads, ten times for larger ones.
SharedHeadOrder find_shared_head_order(std::int64_t heads, const std::vector<std::int64_t>& groups,
                                       const LayerLosses& losses);

// Finds the head order in which groups of neighbours lose least.

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
