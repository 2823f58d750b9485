#include "converter/convert/similar_grouping.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "converter/convert/execute_plan.h"
#include "formats/base/callback.h"
#include "formats/base/ranges.h"

namespace regroup {

namespace {

double sum_of(const std::vector<double>& losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

// The losses of groups per layer, each requested only once.
class StackLosses {
 public:
  StackLosses(const std::vector<std::int64_t>& groups, const LayerLosses& losses)
      : groups_(groups) {
    for (std::size_t layer = 0; layer < groups.size(); ++layer) {
      known_.emplace_back([&losses, layer](const auto& some) { return losses(layer, some); });
    }
  }

  // The losses, summed over the layers with `count` groups.
  std::vector<double> sums(std::int64_t count, const std::vector<HeadGroup>& groups) {
    std::vector<double> sums(groups.size(), 0.0);
    for (std::size_t layer = 0; layer < groups_.size(); ++layer) {
      if (groups_[layer] == count) {
        const std::vector<double> each = known_[layer].of(groups);
        std::ranges::transform(each, sums, sums.begin(), std::plus<>());
      }
    }
    return sums;
  }

  // The losses of every layer if it groups neighbours in this order.
  std::vector<double> in_order(const std::vector<std::int64_t>& order) {
    std::vector<double> found;
    for (std::size_t layer = 0; layer < groups_.size(); ++layer) {
      std::vector<HeadGroup> groups = contiguous_partition(std::ssize(order), groups_[layer]);
      for (HeadGroup& group : groups) {
        group = taken(order, group);
      }
      found.push_back(sum_of(known_[layer].of(groups)));
    }
    return found;
  }

 private:
  const std::vector<std::int64_t>& groups_;
  std::vector<KnownCosts> known_;  // by layer
};

std::vector<std::int64_t> joined(const Partition& parts) {
  std::vector<std::int64_t> all;
  for (const HeadGroup& part : parts) {
    append(all, part);
  }
  return all;
}

// Flattens groups of groups into groups of heads.
std::vector<HeadGroup> heads_in(const std::vector<HeadGroup>& groups, const Partition& parts) {
  std::vector<HeadGroup> found;
  for (const HeadGroup& group : groups) {
    found.push_back(joined(taken(parts, group)));
  }
  return found;
}

// Whether each of these layers keeps one kv head.
bool keep_one(const ConversionPlan& plan, AttentionRole role,
              const std::vector<std::size_t>& layers) {
  return std::ranges::all_of(
      layers, [&](std::size_t layer) { return plan.grouped.kv_heads_of(role)[layer] == 1; });
}

class Search {
 public:
  Search(const ConversionPlan& plan, const Checkpoint& checkpoint,
         const std::function<void(std::int64_t)>& progress, const std::atomic<bool>& stop)
      : plan_(plan), pooler_(plan, checkpoint, &stop), progress_(progress) {}

  SimilarGrouping run() {
    const auto places = pooled_layers(plan_);
    for (const auto& [role, layer] : places) {
      const std::vector<std::size_t> together = layers_in_step(plan_.spec, role, layer);
      std::vector<std::size_t> pooled;
      for (const std::size_t other : together) {
        if (contains(places, std::pair{role, other})) {
          pooled.push_back(other);
        }
      }
      if (!heads_can_move(plan_.spec, role, layer) || keep_one(plan_, role, pooled)) {
        call_if_given(progress_, ++done_);
      } else if (together.size() == 1) {
        group_layer(role, layer);
      } else if (layer == pooled.front()) {
        group_in_step(role, together, pooled);
      }
    }
    return std::move(result_);
  }

 private:
  void group_layer(AttentionRole role, std::size_t layer) {
    const SimilarHeads found = pooler_.similar_heads(role, layer);
    result_.order.set(role, layer, joined(found.partition));
    result_.layers.push_back({role, layer, found.loss, found.contiguous_loss});
    call_if_given(progress_, ++done_);
  }

  // The layers in `together` share one head order. Those in `pooled` lose heads.
  void group_in_step(AttentionRole role, const std::vector<std::size_t>& together,
                     const std::vector<std::size_t>& pooled) {
    std::vector<std::int64_t> groups;
    for (const std::size_t layer : pooled) {
      groups.push_back(plan_.grouped.kv_heads_of(role)[layer]);
    }
    std::set<std::size_t> seen;
    const LayerLosses losses = [&](std::size_t i, const std::vector<HeadGroup>& some) {
      std::vector<double> found = pooler_.losses(role, pooled[i], some);
      done_ += seen.insert(i).second ? 1 : 0;
      call_if_given(progress_, done_);
      return found;
    };
    const SharedHeadOrder found =
        find_shared_head_order(plan_.spec.kv_heads_of(role)[pooled.front()], groups, losses);
    for (const std::size_t layer : together) {
      result_.order.set(role, layer, found.order);
    }
    for (std::size_t i = 0; i < pooled.size(); ++i) {
      result_.layers.push_back({role, pooled[i], found.losses[i], found.contiguous_losses[i]});
    }
  }

  const ConversionPlan& plan_;
  const AttentionPooler pooler_;
  const std::function<void(std::int64_t)>& progress_;
  std::int64_t done_ = 0;
  SimilarGrouping result_;
};

}  // namespace

SharedHeadOrder find_shared_head_order(std::int64_t heads, const std::vector<std::int64_t>& groups,
                                       const LayerLosses& losses) {
  StackLosses stack(groups, losses);
  const std::set<std::int64_t, std::greater<>> counts(groups.begin(), groups.end());
  Partition parts = contiguous_partition(heads, heads);
  const std::vector<std::int64_t> as_they_are = joined(parts);
  for (const std::int64_t count : counts) {
    if (std::ssize(parts) % count == 0) {
      const GroupCosts costs = [&](const std::vector<HeadGroup>& some) {
        return stack.sums(count, heads_in(some, parts));
      };
      parts = heads_in(similar_partition(std::ssize(parts), count, costs), parts);
    }
  }
  SharedHeadOrder found{joined(parts), {}, stack.in_order(as_they_are)};
  found.losses = stack.in_order(found.order);
  if (sum_of(found.losses) >= sum_of(found.contiguous_losses)) {
    found.order = as_they_are;
    found.losses = found.contiguous_losses;
  }
  return found;
}

bool allows_one_grouping(const ConversionPlan& plan) {
  const auto places = pooled_layers(plan);
  return std::ranges::all_of(
      places, [&](const auto& place) { return keep_one(plan, place.first, {place.second}); });
}

SimilarGrouping find_similar_grouping(const ConversionPlan& contiguous,
                                      const Checkpoint& checkpoint,
                                      const std::function<void(std::int64_t)>& progress,
                                      const std::atomic<bool>& stop) {
  return Search(contiguous, checkpoint, progress, stop).run();
}

}  // namespace regroup
