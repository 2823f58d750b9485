#include "converter/grouping/similar_grouping.h"

#include <algorithm>
#include <set>

#include "converter/execute/execute_plan.h"
#include "converter/grouping/shared_head_order.h"
#include "formats/base/callback.h"

namespace regroup {
namespace {

class Search {
 public:
  Search(const ConversionPlan& plan, const AttentionPooler& pooler,
         const std::function<void(std::int64_t)>& progress)
      : plan_(plan), pooler_(pooler), progress_(progress) {}

  void group_layer(AttentionRole role, std::size_t layer) {
    const SimilarHeads found = pooler_.similar_heads(role, layer);
    std::vector<std::int64_t> order;
    for (const HeadGroup& group : found.partition) {
      order.insert(order.end(), group.begin(), group.end());
    }
    result_.order.set(role, layer, std::move(order));
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
  return std::all_of(layers.begin(), layers.end(),
                     [&](std::size_t layer) { return plan.grouped.kv_heads_of(role)[layer] == 1; });
}

}  // namespace

bool allows_one_grouping(const ConversionPlan& plan) {
  const auto places = pooled_layers(plan);
  return std::all_of(places.begin(), places.end(), [&](const auto& place) {
    return keep_one(plan, place.first, {place.second});
  });
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
      if (std::find(places.begin(), places.end(), std::pair{role, other}) != places.end()) {
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
