// One order of heads for several layers, where none of them can move its heads alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "converter/heads/partition.h"

namespace regroup {

/// What groups of heads lose in a layer, which is number `layer` of those that are asked.
using LayerLosses =
    std::function<std::vector<double>(std::size_t layer, const std::vector<HeadGroup>& groups)>;

/// An order of heads, and per layer what it loses there beside the order they have.
struct SharedHeadOrder {
  std::vector<std::int64_t> order;  ///< which head stands where
  std::vector<double> losses;
  std::vector<double> contiguous_losses;
};

/// Of `heads` heads in layers that shall have groups[layer] groups each, all divisors: the order
/// that loses little, and no more than neighbours lose, where the losses of all layers are added.
/// Every layer counts alike: losses are parts of its own energy, and energies of layers are in no
/// common unit. Layers with the most groups decide first, by similar_partition(); those with fewer
/// then share groups of these, where that divides them, and else take what comes to stand together.
///
/// Asks for the losses of many groups of one layer at a time, of each layer about as often: once
/// where two heads make a group, ten times where more do.
SharedHeadOrder find_shared_head_order(std::int64_t heads, const std::vector<std::int64_t>& groups,
                                       const LayerLosses& losses);

}  // namespace regroup
