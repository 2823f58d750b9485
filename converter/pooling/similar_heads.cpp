#include "converter/pooling/similar_heads.h"

#include <ATen/Parallel.h>

#include "converter/pooling/group_loss.h"
#include "converter/pooling/pooling_errors.h"

namespace regroup {
namespace {

SimilarHeads find(const AttentionHeads& heads, const PoolingTask& task) {
  // The problem of all heads at once, of which those of groups are parts.
  const HeadProblems all = LayerProblem(heads, task).problems(0, heads.kv_heads);
  const HeadEnergies layer = energies_of(all);
  const GroupCosts costs = [&](const std::vector<HeadGroup>& groups) {
    std::vector<double> losses(groups.size());
    at::parallel_for(0, std::ssize(groups), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto g = static_cast<std::size_t>(begin); g < static_cast<std::size_t>(end); ++g) {
        check_not_stopped(task.stop);
        losses[g] = loss_of_method({part_of(all.keys, groups[g]), part_of(all.values, groups[g])},
                                   task, layer);
      }
    });
    return losses;
  };
  SimilarHeads found;
  found.partition = similar_partition(heads.kv_heads, task.groups, costs);
  found.loss = cost_of(found.partition, costs);
  found.contiguous_loss = cost_of(contiguous_partition(heads.kv_heads, task.groups), costs);
  return found;
}

}  // namespace

SimilarHeads find_similar_heads(const AttentionHeads& heads, const PoolingTask& task) {
  return with_pooling_errors(task.method, [&] { return find(heads, task); });
}

}  // namespace regroup
