#include "converter/pooling/similar_heads.h"

#include "converter/pooling/head_moments.h"
#include "converter/pooling/layer_problem.h"
#include "converter/pooling/parallel_for.h"

namespace regroup {
namespace {

// Computes the losses of groups of these heads on all cores.
GroupCosts costs_of(const HeadProblems& all, const PoolingTask& task) {
  const HeadEnergies layer = energies_of(all);
  return [&all, &task, layer](const std::vector<HeadGroup>& groups) {
    std::vector<double> losses(groups.size());
    for_each_group(task.device, std::ssize(groups), [&](std::int64_t number) {
      check_not_stopped(task.stop);
      const auto g = static_cast<std::size_t>(number);
      losses[g] = loss_of_method(part_of(all, groups[g]), task, layer);
    });
    return losses;
  };
}

HeadProblems problems_of(const AttentionHeads& heads, const PoolingTask& task) {
  return LayerProblem(heads, AttentionTensors(heads, task.device), task)
      .problems_with_scores(0, heads.kv_heads);
}

SimilarHeads find(const AttentionHeads& heads, const PoolingTask& task) {
  // The problem of all heads contains the problems of all groups. Partitions are compared plane by
  // plane, because there are many. Only the loss of the best one is measured by scores.
  const HeadProblems exact = problems_of(heads, task);
  const HeadProblems quick{exact.keys, exact.values};
  const Partition contiguous = contiguous_partition(heads.kv_heads, task.groups);
  SimilarHeads found;
  found.partition = similar_partition(heads.kv_heads, task.groups, costs_of(quick, task));
  found.loss = cost_of(found.partition, costs_of(exact, task));
  found.contiguous_loss = cost_of(contiguous, costs_of(exact, task));
  if (found.contiguous_loss < found.loss) {
    found.partition = contiguous;
    found.loss = found.contiguous_loss;
  }
  return found;
}

}  // namespace

std::vector<double> losses_of_groups(const AttentionHeads& heads, const PoolingTask& task,
                                     const std::vector<HeadGroup>& groups) {
  return with_pooling_errors(task.method, [&] {
    const HeadProblems all = problems_of(heads, task);
    return costs_of(all, task)(groups);
  });
}

SimilarHeads find_similar_heads(const AttentionHeads& heads, const PoolingTask& task) {
  return with_pooling_errors(task.method, [&] { return find(heads, task); });
}

}  // namespace regroup
