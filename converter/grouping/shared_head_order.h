// One head order for several layers that can only move their heads together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "converter/heads/partition.h"

namespace regroup {

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

}  // namespace regroup
