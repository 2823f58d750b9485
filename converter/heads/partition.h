// Which heads share one: balanced partitions of a layer's heads, and the search for a good one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace regroup {

/// Heads of one group, ascending.
using HeadGroup = std::vector<std::int64_t>;

/// Groups of equal size that hold each head once, ordered by their first heads.
using Partition = std::vector<HeadGroup>;

/// What each of those groups would cost, ≥ 0. Asked for many at once, so that they can be computed
/// side by side.
using GroupCosts = std::function<std::vector<double>(const std::vector<HeadGroup>& groups)>;

/// Neighbours.
Partition contiguous_partition(std::int64_t heads, std::int64_t groups);

double cost_of(const Partition& partition, const GroupCosts& costs);

/// A partition of little total cost, and of no more than the contiguous one's: the better of that
/// and the one found by growing groups greedily and swapping heads while that helps, both by the
/// sum of the costs of pairs, then swapping while it helps by the costs of whole groups. Costs are
/// asked for of all pairs and, for groups of more than two, of at most `most_groups` groups. The
/// same costs give the same partition.
Partition similar_partition(std::int64_t heads, std::int64_t groups, const GroupCosts& costs,
                            std::int64_t most_groups = 128);

}  // namespace regroup
