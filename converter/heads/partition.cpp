#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "converter/heads/heads.h"

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

// Swaps heads by the costs of whole groups, trying the swaps with the best pair costs first.
class ExactSwaps {
 public:
  ExactSwaps(const PairCosts& pairs, const GroupCosts& costs, std::int64_t most_groups)
      : pairs_(pairs), costs_(costs), left_(most_groups) {}

  void improve(Partition& partition) {
    std::vector<double> now = costs_(partition);
    while (left_ > 0) {
      const std::optional<Swap> swap = helpful_swap(partition, now);
      if (!swap) {
        return;
      }
      apply(*swap, partition);
      now[swap->group] = known_.at(sorted(partition[swap->group]));
      now[swap->other_group] = known_.at(sorted(partition[swap->other_group]));
    }
  }

 private:
  static constexpr std::size_t kAtOnce = 8;

  static HeadGroup sorted(HeadGroup group) {
    std::ranges::sort(group);
    return group;
  }

  // The best swap of the first batch that contains an improvement.
  std::optional<Swap> helpful_swap(const Partition& partition, const std::vector<double>& now) {
    std::vector<std::pair<double, Swap>> order;
    for (const Swap& swap : swaps_of(partition)) {
      order.emplace_back(pairs_.change(swap, partition), swap);
    }
    std::ranges::stable_sort(order, {}, &std::pair<double, Swap>::first);
    for (std::size_t begin = 0; begin < order.size() && left_ > 0; begin += kAtOnce) {
      const std::size_t end = std::min(order.size(), begin + kAtOnce);
      std::optional<Swap> best;
      double least = -kSmallestGain * std::accumulate(now.begin(), now.end(), 0.0);
      learn(partition, order, begin, end);
      for (std::size_t i = begin; i < end; ++i) {
        const Swap& swap = order[i].second;
        const auto [group, other] = after(swap, partition);
        const double change =
            known_.at(group) + known_.at(other) - now[swap.group] - now[swap.other_group];
        if (change < least) {
          least = change;
          best = swap;
        }
      }
      if (best) {
        return best;
      }
    }
    return std::nullopt;
  }

  static std::pair<HeadGroup, HeadGroup> after(const Swap& swap, const Partition& partition) {
    HeadGroup group = partition[swap.group], other = partition[swap.other_group];
    std::swap(group[swap.place], other[swap.other_place]);
    return {sorted(std::move(group)), sorted(std::move(other))};
  }

  void learn(const Partition& partition, const std::vector<std::pair<double, Swap>>& order,
             std::size_t begin, std::size_t end) {
    std::map<HeadGroup, double> unknown;
    for (std::size_t i = begin; i < end; ++i) {
      const auto [group, other] = after(order[i].second, partition);
      for (const HeadGroup& each : {group, other}) {
        if (!known_.contains(each)) {
          unknown[each] = 0.0;
        }
      }
    }
    std::vector<HeadGroup> asked;
    for (const auto& [group, cost] : unknown) {
      asked.push_back(group);
    }
    const std::vector<double> found = costs_(asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      known_[asked[i]] = found[i];
    }
    left_ -= std::ssize(asked);
  }

  const PairCosts& pairs_;
  const GroupCosts& costs_;
  std::int64_t left_;
  std::map<HeadGroup, double> known_;
};

}  // namespace

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
    ExactSwaps(pairs, costs, most_groups).improve(found);
    sort_groups(found);
  }
  const bool better = cost_of(found, costs) < cost_of(neighbours, costs) * (1.0 - kSmallestGain);
  return better ? found : neighbours;
}

}  // namespace regroup
