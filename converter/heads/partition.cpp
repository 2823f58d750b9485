#include <algorithm>
#include <array>
#include <numeric>

#include "converter/heads/heads.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

// The minimum gain of a swap, larger than rounding errors.
constexpr double kSmallestGain = 1e-9;

// A swap of two heads of different groups, by their places.
struct Swap {
  std::size_t group = 0, place = 0, other_group = 0, other_place = 0;
};

void apply(const Swap& swap, Partition& partition) {
  std::swap(partition[swap.group][swap.place], partition[swap.other_group][swap.other_place]);
}

void sort_groups(Partition& partition) {
  for (HeadGroup& group : partition) {
    std::ranges::sort(group);
  }
  std::ranges::sort(partition);
}

// Every pair of places in different groups.
std::vector<Swap> swaps_of(const Partition& partition) {
  std::vector<Swap> swaps;
  for (std::size_t g = 0; g < partition.size(); ++g) {
    for (std::size_t h = g + 1; h < partition.size(); ++h) {
      for (std::size_t i = 0; i < partition[g].size(); ++i) {
        for (std::size_t j = 0; j < partition[h].size(); ++j) {
          swaps.push_back({g, i, h, j});
        }
      }
    }
  }
  return swaps;
}

// Costs of all pairs of heads, and the search based on them.
class PairCosts {
 public:
  PairCosts(std::int64_t heads, const GroupCosts& costs)
      : heads_(heads), of_(static_cast<std::size_t>(heads * heads), 0.0) {
    std::vector<HeadGroup> pairs;
    for (std::int64_t i = 0; i < heads; ++i) {
      for (std::int64_t j = i + 1; j < heads; ++j) {
        pairs.push_back({i, j});
      }
    }
    const std::vector<double> found = costs(pairs);
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      at(pairs[k][0], pairs[k][1]) = at(pairs[k][1], pairs[k][0]) = found[k];
    }
  }

  // The sum of a head's costs with each member of a group. The cost with itself is 0.
  double with_group(std::int64_t head, const HeadGroup& group) const {
    return std::accumulate(group.begin(), group.end(), 0.0,
                           [&](double sum, std::int64_t other) { return sum + of(head, other); });
  }

  double total(const Partition& partition) const {
    double sum = 0.0;
    for (const HeadGroup& group : partition) {
      for (const std::int64_t head : group) {
        sum += with_group(head, group) / 2;
      }
    }
    return sum;
  }

  // The change of cost by a swap.
  double change(const Swap& swap, const Partition& partition) const {
    const HeadGroup &group = partition[swap.group], &other = partition[swap.other_group];
    const std::int64_t a = group[swap.place], b = other[swap.other_place];
    return with_group(b, group) - with_group(a, group) + with_group(a, other) -
           with_group(b, other) - 2 * of(a, b);
  }

 private:
  double& at(std::int64_t i, std::int64_t j) {
    return of_[static_cast<std::size_t>(i * heads_ + j)];
  }
  double of(std::int64_t i, std::int64_t j) const {
    return of_[static_cast<std::size_t>(i * heads_ + j)];
  }

  std::int64_t heads_;
  std::vector<double> of_;
};

// Fills groups one after the other: each starts with the first remaining head, counted from
// `start`, and repeatedly adds the best head.
Partition grown_partition(std::int64_t heads, std::int64_t groups, std::int64_t start,
                          const PairCosts& pairs) {
  std::vector<std::int64_t> left = evenly_spaced(heads);
  std::rotate(left.begin(), left.begin() + start, left.end());
  Partition partition(static_cast<std::size_t>(groups));
  for (HeadGroup& group : partition) {
    auto next = left.begin();
    while (true) {
      group.push_back(*next);
      left.erase(next);
      if (std::ssize(group) == heads / groups) {
        break;
      }
      next = std::ranges::min_element(
          left, {}, [&](std::int64_t head) { return pairs.with_group(head, group); });
    }
  }
  return partition;
}

// Makes every swap that lowers the cost, until none does.
void swap_by_pairs(Partition& partition, const PairCosts& pairs) {
  const std::vector<Swap> swaps = swaps_of(partition);
  const double enough = kSmallestGain * pairs.total(partition);
  for (bool better = true; better;) {
    better = false;
    for (const Swap& swap : swaps) {
      if (pairs.change(swap, partition) < -enough) {
        apply(swap, partition);
        better = true;
      }
    }
  }
}

// The best partition of one start per head.
Partition best_by_pairs(std::int64_t heads, std::int64_t groups, const PairCosts& pairs) {
  Partition best = contiguous_partition(heads, groups);
  swap_by_pairs(best, pairs);
  for (std::int64_t start = 0; start < heads; ++start) {
    Partition partition = grown_partition(heads, groups, start, pairs);
    swap_by_pairs(partition, pairs);
    if (pairs.total(partition) < pairs.total(best) * (1.0 - kSmallestGain)) {
      best = std::move(partition);
    }
  }
  sort_groups(best);
  return best;
}

// The two groups that a swap makes.
std::array<HeadGroup, 2> groups_after(const Swap& swap, const Partition& partition) {
  std::array groups{partition[swap.group], partition[swap.other_group]};
  std::swap(groups[0][swap.place], groups[1][swap.other_place]);
  std::ranges::for_each(groups, std::ranges::sort);
  return groups;
}

// Makes the best swap of the first few that contain an improvement of the groups' costs `now`,
// trying those with the best pair costs first. Returns whether there is one.
bool swap_by_groups(Partition& partition, std::vector<double>& now, const PairCosts& pairs,
                    KnownCosts& costs, std::int64_t most_groups) {
  constexpr std::size_t kAtOnce = 8;
  std::vector<std::pair<double, Swap>> order;
  for (const Swap& swap : swaps_of(partition)) {
    order.emplace_back(pairs.change(swap, partition), swap);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, Swap>::first);
  for (std::size_t begin = 0; begin < order.size() && costs.requested() < most_groups;
       begin += kAtOnce) {
    const auto tried = std::span(order).subspan(begin, std::min(kAtOnce, order.size() - begin));
    std::vector<HeadGroup> groups;
    for (const auto& [change, swap] : tried) {
      append(groups, groups_after(swap, partition));
    }
    const std::vector<double> then = costs.of(groups);
    std::optional<std::size_t> best;
    double least = -kSmallestGain * std::accumulate(now.begin(), now.end(), 0.0);
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const Swap& swap = tried[i].second;
      const double change = then[2 * i] + then[2 * i + 1] - now[swap.group] - now[swap.other_group];
      if (change < least) {
        least = change;
        best = i;
      }
    }
    if (best) {
      const Swap& swap = tried[*best].second;
      apply(swap, partition);
      now[swap.group] = then[2 * *best];
      now[swap.other_group] = then[2 * *best + 1];
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<double> KnownCosts::of(const std::vector<HeadGroup>& groups) {
  std::vector<HeadGroup> unknown;
  for (const HeadGroup& group : groups) {
    if (known_.try_emplace(group, 0.0).second) {
      unknown.push_back(group);
    }
  }
  if (!unknown.empty()) {
    const std::vector<double> found = costs_(unknown);
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      known_[unknown[i]] = found[i];
    }
  }
  std::vector<double> all;
  for (const HeadGroup& group : groups) {
    all.push_back(known_.at(group));
  }
  return all;
}

Partition contiguous_partition(std::int64_t heads, std::int64_t groups) {
  return heads_of_groups(heads, groups, groups);
}

double cost_of(const Partition& partition, const GroupCosts& costs) {
  const std::vector<double> each = costs(partition);
  return std::accumulate(each.begin(), each.end(), 0.0);
}

Partition similar_partition(std::int64_t heads, std::int64_t groups, const GroupCosts& costs,
                            std::int64_t most_groups) {
  Partition neighbours = contiguous_partition(heads, groups);
  if (groups == 1 || groups == heads) {
    return neighbours;
  }
  const PairCosts pairs(heads, costs);
  Partition found = best_by_pairs(heads, groups, pairs);
  if (heads / groups > 2) {
    std::vector<double> now = costs(found);
    KnownCosts known(costs);
    while (swap_by_groups(found, now, pairs, known, most_groups)) {
    }
    sort_groups(found);
  }
  const bool better = cost_of(found, costs) < cost_of(neighbours, costs) * (1.0 - kSmallestGain);
  return better ? found : neighbours;
}

}  // namespace regroup
