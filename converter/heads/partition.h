// Balanced partitions of a layer's heads into groups, and the search for a good one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace regroup {

/// Heads of one group, ascending.
using HeadGroup = std::vector<std::int64_t>;

/// Groups of equal size that hold each head once, ordered by their first heads.
using Partition = std::vector<HeadGroup>;

/// Computes the cost of each group, ≥ 0. A call has many groups, so that it can compute them in
/// parallel.
using GroupCosts = std::function<std::vector<double>(const std::vector<HeadGroup>& groups)>;

/// Groups of neighbours.
Partition contiguous_partition(std::int64_t heads, std::int64_t groups);

double cost_of(const Partition& partition, const GroupCosts& costs);

/// A partition with a small total cost, at most that of the contiguous one. The search grows groups
/// greedily and swaps heads while that helps, both by the sum of pair costs, then swaps while that
/// helps by the costs of whole groups. Requests the costs of all pairs and, for groups of more than
/// two, of at most `most_groups` groups. Deterministic for given costs.
Partition similar_partition(std::int64_t heads, std::int64_t groups, const GroupCosts& costs,
                            std::int64_t most_groups = 128);

}  // namespace regroup
