#include "converter/similar_grouping.h"

#include "converter/execute_plan.h"

namespace regroup {

SimilarGrouping find_similar_grouping(const ConversionPlan& contiguous,
                                      const Checkpoint& checkpoint,
                                      const std::function<void(std::int64_t)>& progress,
                                      const std::atomic<bool>& stop) {
  const AttentionPooler pooler = pooler_of(contiguous, checkpoint, &stop);
  SimilarGrouping result;
  std::int64_t done = 0;
  for (const auto& [role, layer] : pooled_layers(contiguous)) {
    if (heads_can_move(contiguous.spec, role, layer)) {
      const SimilarHeads found = pooler.similar_heads(role, layer);
      std::vector<std::int64_t> order;
      for (const HeadGroup& group : found.partition) {
        order.insert(order.end(), group.begin(), group.end());
      }
      result.order.set(role, layer, std::move(order));
      result.layers.push_back({role, layer, found.loss, found.contiguous_loss});
    }
    progress(++done);
  }
  return result;
}

}  // namespace regroup
