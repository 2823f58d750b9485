// Shapes: H query heads, N kv heads before and G after, n = N / G, m = H / N, d features per head,
// D inputs, E outputs.
#include "converter/pooling/pool_attention.h"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>

#include "converter/pooling/absorbed_norms.h"
#include "converter/pooling/head_moments.h"
#include "converter/pooling/layer_problem.h"
#include "converter/pooling/parallel_for.h"

namespace regroup {
namespace {

// The results of pooling. On the CPU they are written in place, elsewhere copied at the end.
class Target {
 public:
  Target(AttentionHeads& heads, c10::Device device)
      : heads_(heads), views_(heads, c10::kCPU), tensors_(views_) {
    if (!device.is_cpu()) {
      for (at::Tensor* tensor : all_of(tensors_)) {
        *tensor = tensor->defined() ? at::empty_like(*tensor, at::TensorOptions(device)) : *tensor;
      }
    }
  }

  const AttentionTensors& tensors() const { return tensors_; }

  void finish() {
    const auto views = all_of(views_), tensors = all_of(tensors_);
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (views[i]->defined() && !views[i]->is_same(*tensors[i])) {
        views[i]->copy_(*tensors[i]);
      }
    }
  }

  // Adds the correction of the output's bias, [E].
  void add_to_bias(const at::Tensor& error) {
    at::Tensor bias = tensor_of(heads_.o.bias, {heads_.o.outputs}, c10::kCPU);
    bias += error.to(at::kCPU);
  }

 private:
  static std::array<at::Tensor*, 7> all_of(AttentionTensors& attention) {
    return {&attention.q.weight, &attention.q.bias, &attention.k.weight, &attention.k.bias,
            &attention.v.weight, &attention.v.bias, &attention.o};
  }

  AttentionHeads& heads_;
  AttentionTensors views_, tensors_;
};

// Applies solutions: computes the shared keys and values, and the queries and outputs that match.
class SharedHeads {
 public:
  // `source` has `kv_heads`. Keeps the tensors of both.
  SharedHeads(const AttentionTensors& source, const AttentionTensors& target, std::int64_t kv_heads,
              const PoolingTask& task)
      : source_(source),
        target_(target),
        members_(kv_heads / task.groups),
        readers_(source.q.weight.size(0) / kv_heads) {}

  void put(const HeadSolutions& solutions, std::int64_t group) const {
    put_shared(source_.k, target_.k, solutions.keys.heads.mix, group);
    put_shared(source_.v, target_.v, solutions.values.heads.mix, group);
    for (std::int64_t member = 0; member < members_; ++member) {
      put_readers(solutions.keys.heads.back.select(0, member).t(),
                  solutions.values.heads.back.select(0, member), group * members_ + member);
    }
  }

  // The correction of the output's bias, [E]: Σ_h O_h E[v_h] of the source minus that of the
  // target.
  at::Tensor mean_error(const InputMoments& inputs) const {
    const MomentTensors moments(inputs, source_.o.device());
    const auto output = [&](const AttentionTensors& attention) {
      const at::Tensor values = mean_of(attention.v, moments);
      const std::int64_t copies = attention.q.weight.size(0) / values.size(0);
      return at::einsum("eha,ha->e", {attention.o, values.repeat_interleave(copies, 0)});
    };
    return output(source_) - output(target_);
  }

 private:
  void put_shared(const HeadMaps& from, const HeadMaps& to, const at::Tensor& mix,
                  std::int64_t group) const {
    const std::int64_t d = mix.size(1);
    const at::Tensor wide = mix.transpose(0, 1).reshape({d, -1});  // [d, n·d]
    const auto rows = [&](const at::Tensor& heads) {
      return heads.narrow(0, group * members_, members_).flatten(0, 1);  // [n·d, D] or [n·d]
    };
    to.weight.select(0, group).copy_(at::matmul(wide, rows(from.weight)));
    if (from.bias.defined()) {
      to.bias.select(0, group).copy_(at::matmul(wide, rows(from.bias)));
    }
  }

  // The queries and outputs that read one kv head: q·(back x) = (backᵀ q)·x.
  void put_readers(const at::Tensor& keys_back_transposed, const at::Tensor& values_back,
                   std::int64_t kv_head) const {
    for (std::int64_t h = kv_head * readers_; h < (kv_head + 1) * readers_; ++h) {
      const auto put_query = [&](const at::Tensor& from, const at::Tensor& to) {
        to.select(0, h).copy_(at::matmul(keys_back_transposed, from.select(0, h)));
      };
      put_query(source_.q.weight, target_.q.weight);
      if (source_.q.bias.defined()) {
        put_query(source_.q.bias, target_.q.bias);
      }
      target_.o.select(1, h).copy_(at::matmul(source_.o.select(1, h), values_back));
    }
  }

  AttentionTensors source_, target_;
  std::int64_t members_, readers_;
};

std::vector<HeadProblems> problems_of(const AttentionHeads& heads,
                                      const AttentionTensors& attention, const PoolingTask& task) {
  const MomentTensors inputs(task.kv_inputs, attention.o.device());
  const LayerProblem layer(heads, attention, inputs, task);
  const std::int64_t members = heads.kv_heads / task.groups;
  std::vector<HeadProblems> problems(static_cast<std::size_t>(task.groups));
  for_each_group(task.device, task.groups, [&](std::int64_t group) {
    check_not_stopped(task.stop);
    problems[static_cast<std::size_t>(group)] = layer.problems(group * members, members);
  });
  return problems;
}

HeadEnergies sum_of_energies(const std::vector<HeadProblems>& problems) {
  HeadEnergies sum;
  for (const HeadProblems& each : problems) {
    const HeadEnergies energies = energies_of(each);
    sum.keys += energies.keys;
    sum.values += energies.values;
  }
  return sum;
}

GroupReport report_of(const HeadSolutions& solutions, const HeadEnergies& layer) {
  const Energy& keys = solutions.keys.energy;
  const Energy& values = solutions.values.energy;
  return {keys.kept(),
          values.kept(),
          keys.norm(),
          values.norm(),
          share_of(keys.all, layer.keys),
          share_of(values.all, layer.values),
          loss_of(solutions, layer)};
}

DenseLinear fewer_rows(const DenseLinear& linear, std::int64_t rows) {
  DenseLinear result{rows, linear.inputs, {}, {}};
  result.weight.resize(static_cast<std::size_t>(rows * linear.inputs));
  result.bias.resize(linear.bias.empty() ? 0 : static_cast<std::size_t>(rows));
  return result;
}

// The head that a group keeps, counted within the group, for methods that keep one.
std::int64_t chosen_head(const HeadProblems& problems, const PoolingTask& task,
                         std::int64_t group) {
  return task.chosen.empty()
             ? 0
             : task.chosen[static_cast<std::size_t>(group)] - group * problems.values.heads();
}

void pool_groups(const AttentionHeads& heads, const PoolingTask& task, PooledAttention& result) {
  const AttentionTensors source(heads, task.device);
  const std::vector<HeadProblems> problems = problems_of(heads, source, task);
  const HeadEnergies layer = sum_of_energies(problems);
  Target target(result.heads, source.o.device());
  const SharedHeads shared(source, target.tensors(), heads.kv_heads, task);
  for_each_group(task.device, task.groups, [&](std::int64_t group) {
    check_not_stopped(task.stop);
    const auto number = static_cast<std::size_t>(group);
    const HeadProblems& problem = problems[number];
    HeadSolutions solutions = solve(problem, task, chosen_head(problem, task, group));
    if (absorbs_norms(heads, task)) {
      align(solutions.keys.heads, problem.keys.basis, normalises_each_head(heads));
    }
    shared.put(solutions, group);
    result.groups[number] = report_of(solutions, layer);
  });
  if (needs_solver(task.method) && !heads.o.bias.empty()) {
    target.add_to_bias(shared.mean_error(task.kv_inputs));
  }
  target.finish();
}

PooledAttention pool_layer(const AttentionHeads& heads, const PoolingTask& task) {
  if (task.groups < 1 || heads.kv_heads % task.groups != 0) {
    throw_usage("{} kv heads cannot become {}: no divisor", heads.kv_heads, task.groups);
  }
  PooledAttention result;
  result.groups.resize(static_cast<std::size_t>(task.groups));
  result.heads = heads;
  if (task.groups == heads.kv_heads) {
    return result;
  }
  result.heads.kv_heads = task.groups;
  result.heads.k = fewer_rows(heads.k, task.groups * heads.head_dim);
  result.heads.v = fewer_rows(heads.v, task.groups * heads.head_dim);
  if (absorbs_norms(heads, task)) {
    const FoldedHeads folded = without_norms(heads, task);
    pool_groups(folded.heads, task, result);
    set_norms(heads, folded, task, result.heads);
  } else {
    pool_groups(heads, task, result);
    set_norms(heads, {}, task, result.heads);
  }
  return result;
}

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
  const auto problems_in = [&](const AttentionHeads& all) {
    const MomentTensors inputs(task.kv_inputs, task.device);
    return LayerProblem(all, AttentionTensors(all, task.device), inputs, task)
        .problems(0, all.kv_heads);
  };
  return absorbs_norms(heads, task) ? problems_in(without_norms(heads, task).heads)
                                    : problems_in(heads);
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

PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task) {
  return with_pooling_errors(task.method, [&] { return pool_layer(heads, task); });
}

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
