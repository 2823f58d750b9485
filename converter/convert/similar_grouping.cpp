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

// Caches the losses of groups per layer, so that each is requested only once.
class StackLosses {
 public:
  StackLosses(const std::vector<std::int64_t>& groups, const LayerLosses& losses)
      : groups_(groups), losses_(losses), known_(groups.size()) {}

  // The losses, summed over the layers with `count` groups.
  std::vector<double> sums(std::int64_t count, const std::vector<HeadGroup>& groups) {
    std::vector<double> sums(groups.size(), 0.0);
    for (std::size_t layer = 0; layer < groups_.size(); ++layer) {
      if (groups_[layer] == count) {
        const std::vector<double> each = of_layer(layer, groups);
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
        for (std::int64_t& head : group) {
          head = order[static_cast<std::size_t>(head)];
        }
      }
      const std::vector<double> each = of_layer(layer, groups);
      found.push_back(std::accumulate(each.begin(), each.end(), 0.0));
    }
    return found;
  }

 private:
  std::vector<double> of_layer(std::size_t layer, const std::vector<HeadGroup>& groups) {
    std::map<HeadGroup, double>& known = known_[layer];
    std::vector<HeadGroup> unknown;
    for (const HeadGroup& group : groups) {
      if (known.try_emplace(group, 0.0).second) {
        unknown.push_back(group);
      }
    }
    if (!unknown.empty()) {
      const std::vector<double> found = losses_(layer, unknown);
      for (std::size_t i = 0; i < unknown.size(); ++i) {
        known[unknown[i]] = found[i];
      }
    }
    std::vector<double> all;
    for (const HeadGroup& group : groups) {
      all.push_back(known.at(group));
    }
    return all;
  }

  const std::vector<std::int64_t>& groups_;
  const LayerLosses& losses_;
  std::vector<std::map<HeadGroup, double>> known_;  // by layer
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
    HeadGroup& heads = found.emplace_back();
    for (const std::int64_t part : group) {
      append(heads, parts[static_cast<std::size_t>(part)]);
    }
  }
  return found;
}

double sum_of(const std::vector<double>& losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

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

namespace {

class Search {
 public:
  Search(const ConversionPlan& plan, const AttentionPooler& pooler,
         const std::function<void(std::int64_t)>& progress)
      : plan_(plan), pooler_(pooler), progress_(progress) {}

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

  void skip() { call_if_given(progress_, ++done_); }

  SimilarGrouping take() { return std::move(result_); }

 private:
  const ConversionPlan& plan_;
  const AttentionPooler& pooler_;
  const std::function<void(std::int64_t)>& progress_;
  std::int64_t done_ = 0;
  SimilarGrouping result_;
};

// Whether each of these layers keeps one kv head.
bool keep_one(const ConversionPlan& plan, AttentionRole role,
              const std::vector<std::size_t>& layers) {
  return std::ranges::all_of(
      layers, [&](std::size_t layer) { return plan.grouped.kv_heads_of(role)[layer] == 1; });
}

}  // namespace

bool allows_one_grouping(const ConversionPlan& plan) {
  const auto places = pooled_layers(plan);
  return std::ranges::all_of(
      places, [&](const auto& place) { return keep_one(plan, place.first, {place.second}); });
}

SimilarGrouping find_similar_grouping(const ConversionPlan& contiguous,
                                      const Checkpoint& checkpoint,
                                      const std::function<void(std::int64_t)>& progress,
                                      const std::atomic<bool>& stop) {
  const AttentionPooler pooler = pooler_of(contiguous, checkpoint, &stop);
  Search search(contiguous, pooler, progress);
  const auto places = pooled_layers(contiguous);
  for (const auto& [role, layer] : places) {
    const std::vector<std::size_t> together = layers_in_step(contiguous.spec, role, layer);
    std::vector<std::size_t> pooled;
    for (const std::size_t other : together) {
      if (contains(places, std::pair{role, other})) {
        pooled.push_back(other);
      }
    }
    if (!heads_can_move(contiguous.spec, role, layer) || keep_one(contiguous, role, pooled)) {
      search.skip();
    } else if (together.size() == 1) {
      search.group_layer(role, layer);
    } else if (layer == pooled.front()) {
      search.group_in_step(role, together, pooled);
    }
  }
  return search.take();
}

}  // namespace regroup
