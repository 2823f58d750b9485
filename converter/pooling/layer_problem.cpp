#include "converter/pooling/layer_problem.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "converter/pooling/absorbed_norms.h"

namespace regroup {

namespace {

// The minimum weight of keys, so that no head is ignored.
constexpr double kLeastSpread = 1e-2;

// 1 for features whose means count, else 0: [d]. Without RoPE, a mean key only adds a constant to
// all scores of a query.
at::Tensor rotating_features(const HeadBasis& basis, std::int64_t head_dim, c10::Device device) {
  at::Tensor counts = at::zeros({head_dim}, at::kDouble);
  for (const auto& [a, b] : basis.rope_planes) {
    counts[a] = 1.0;
    counts[b] = 1.0;
  }
  return (basis.fixed() ? counts + 1.0 : counts).to(device);
}

// The basis in which keys are solved for. Where each head is normalised, its readers should change
// no query's size, which norms would take back: they rotate planes, also of features without RoPE.
HeadBasis solved_features(const AttentionHeads& heads, HeadBasis basis) {
  if (basis.fixed()) {
    return free_basis(heads.head_dim);
  }
  while (normalises_each_head(heads) && basis.free.size() > 1) {
    const std::int64_t last = basis.free.back();
    basis.free.pop_back();
    basis.rope_planes.emplace_back(basis.free.back(), last);
    basis.free.pop_back();
  }
  return basis;
}

// Whether the means of values count. They do not if the method can correct them in the output's
// bias.
at::Tensor counted_values(const AttentionHeads& heads, PoolMethod method, c10::Device device) {
  const bool counts = heads.o.bias.empty() || !needs_solver(method);
  return at::full({heads.head_dim}, counts ? 1.0 : 0.0,
                  at::TensorOptions(at::kDouble).device(device));
}

// Sums the matrices of query heads [H, d, d] over the readers of each kv head.
at::Tensor per_kv_head(const at::Tensor& of_query_heads, std::int64_t kv_heads) {
  const std::int64_t d = of_query_heads.size(1);
  return of_query_heads.view({kv_heads, -1, d, d}).sum(1);
}

// The change of the output when a query head's attention moves from one value to another, relative
// to the mean of the heads: [H]. `of_values`: covariance of each kv head's values.
at::Tensor spreads(const at::Tensor& readers, const at::Tensor& of_values) {
  const at::Tensor values = of_values.repeat_interleave(readers.size(0) / of_values.size(0), 0);
  const at::Tensor spread = (readers * values).sum({1, 2});
  const at::Tensor mean = spread.mean();
  return at::where(mean > 0.0, (spread / mean).clamp_min(kLeastSpread), at::ones_like(spread));
}

// E[q qᵀ], each query head weighted by how much its values differ.
at::Tensor key_weights(const HeadMaps& q, const PoolingTask& task, const at::Tensor& spread,
                       std::int64_t kv_heads) {
  const HeadMoments queries(q, MomentTensors(task.query_inputs, spread.device()),
                            at::ones({q.weight.size(1)}, spread.options()), task.stop);
  return per_kv_head(queries.powers() * spread.view({-1, 1, 1}), kv_heads);
}

// Key distances of the readers of kv heads: [N, T], weighted by how much their values differ.
at::Tensor distances_of(const KeyDistances& distances, const at::Tensor& spread,
                        std::int64_t kv_heads) {
  const at::Tensor rows =
      tensor_of(distances.weights, {spread.size(0), distances.length}, spread.device());
  const at::Tensor sum = (rows * spread.unsqueeze(1)).view({kv_heads, -1, distances.length}).sum(1);
  return sum / sum.sum(1, true);
}

GroupProblem problem_of(const HeadMoments& moments, const at::Tensor& weight,
                        const BasisIndices& basis, std::int64_t first, std::int64_t count) {
  const at::Tensor readers = weight.narrow(0, first, count);
  GroupProblem problem{basis, std::nullopt, std::nullopt};
  if (basis.has_free()) {
    problem.free = {moments.free_gram(basis, first, count),
                    readers.index_select(1, basis.free).index_select(2, basis.free)};
  }
  if (basis.rotates()) {
    const at::Tensor diagonal = readers.diagonal(0, 1, 2);  // [n, d]
    problem.planes = {
        moments.plane_gram(basis, first, count),
        (diagonal.index_select(1, basis.a) + diagonal.index_select(1, basis.b)).t() / 2};
  }
  return problem;
}

}  // namespace

HeadProblems part_of(const HeadProblems& problems, std::span<const std::int64_t> heads) {
  HeadProblems part{part_of(problems.keys, heads), part_of(problems.values, heads)};
  if (problems.scores) {
    part.scores.emplace(part_of(*problems.scores, heads));
  }
  return part;
}

LayerProblem::LayerProblem(const AttentionHeads& heads, const AttentionTensors& attention,
                           const MomentTensors& inputs, const PoolingTask& task)
    : key_basis_(solved_features(heads, task.key_basis), attention.o.device()),
      value_basis_(free_basis(heads.head_dim), attention.o.device()),
      keys_(attention.k, inputs,
            rotating_features(task.key_basis, heads.head_dim, attention.o.device()), task.stop),
      values_(attention.v, inputs, counted_values(heads, task.method, attention.o.device()),
              task.stop) {
  const at::Tensor outputs = attention.o.permute({1, 2, 0});             // [H, d, E]
  const at::Tensor readers = at::bmm(outputs, outputs.transpose(1, 2));  // O_hᵀ O_h, [H, d, d]
  const at::Tensor spread = spreads(readers, values_.covariances());
  key_weight_ = key_weights(attention.q, task, spread, heads.kv_heads);
  value_weight_ = per_kv_head(readers, heads.kv_heads);
  if (task.key_basis.rotates() && task.distances.length > 0 && !normalises_each_head(heads)) {
    rope_average_.emplace(task.key_basis, distances_of(task.distances, spread, heads.kv_heads),
                          task.distances.both_sides);
  }
}

HeadProblems LayerProblem::problems(std::int64_t first, std::int64_t count) const {
  HeadProblems result{problem_of(keys_, key_weight_, key_basis_, first, count),
                      problem_of(values_, value_weight_, value_basis_, first, count)};
  if (rope_average_) {
    result.scores.emplace(
        ScoreProblem{keys_.free_gram(value_basis_, first, count),
                     keys_.means().narrow(0, first, count), key_weight_.narrow(0, first, count),
                     rope_average_->of(at::arange(first, first + count, key_basis_.a.options()))});
  }
  return result;
}

HeadSolutions solve(const HeadProblems& problems, const PoolingTask& task, std::int64_t chosen) {
  const bool fixed = task.key_basis.fixed() && needs_solver(task.method);
  HeadSolutions solutions{
      solve_group(fixed ? PoolMethod::kMean : task.method, problems.keys, chosen),
      solve_group(task.method, problems.values, chosen)};
  if (problems.scores) {
    Combination& heads = solutions.keys.heads;
    heads = task.method == PoolMethod::kLowrank ? solve_scores(*problems.scores, heads) : heads;
    solutions.keys.energy = energy_of(*problems.scores, heads);
  }
  return solutions;
}

HeadEnergies energies_of(const HeadProblems& problems) {
  return {problems.scores ? energy_of(*problems.scores) : energy_of(problems.keys),
          energy_of(problems.values)};
}

double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer) {
  return share_of(solutions.keys.energy.lost, layer.keys) +
         share_of(solutions.values.energy.lost, layer.values);
}

double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer) {
  if (task.method == PoolMethod::kRandom) {
    const std::int64_t heads = problems.values.heads();
    double sum = 0.0;
    for (std::int64_t j = 0; j < heads; ++j) {
      sum += loss_of(solve(problems, task, j), layer);
    }
    return sum / static_cast<double>(heads);
  }
  if (task.method != PoolMethod::kLowrank || task.key_basis.fixed() || problems.scores) {
    return loss_of(solve(problems, task, 0), layer);
  }
  const HeadEnergies all = energies_of(problems);  // eigenvalues alone are enough
  return share_of(all.keys - energy_kept_by_lowrank(problems.keys), layer.keys) +
         share_of(all.values - energy_kept_by_lowrank(problems.values), layer.values);
}

}  // namespace regroup
