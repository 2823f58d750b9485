// One shared key head for a group with RoPE that preserves the queries' scores best.
//
// Shapes: n heads of d features. Queries of head j have E[q qᵀ] = Q_j; keys are x_j, and the shared
// key is x = Σ_j mix_j x_j, which the queries read as back_j x.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "converter/pooling/combination.h"

namespace regroup {

/// The moments of a group's keys and queries that scores depend on, in double.
struct ScoreProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, d, n, d]
  at::Tensor mean;    ///< E[x_j], [n, d]
  at::Tensor weight;  ///< Q_j, [n, d, d]
  RopeAverage rope;   ///< of the n heads

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t features() const { return gram.size(1); }
};

/// The problem of a subset of its heads.
ScoreProblem part_of(const ScoreProblem& problem, std::span<const std::int64_t> heads);

/// Minimises Σ_j E[(q_jᵀ S_t x_j − q_jᵀ back_j S_t x)²] minus the part that is constant over the
/// keys of a query, which the softmax ignores. The expectation is over queries, keys and distances
/// t, assumed independent. back_j and mix may couple RoPE's planes, as nothing rotates after them.
/// Given one of them, the other has a closed form; they are updated alternately from `start` until
/// convergence. Scaled so that x has the mean power of the heads.
Combination solve_scores(const ScoreProblem& problem, const Combination& start);

/// The energies of any combination: lost and all as minimised above, shared and usual of the keys.
Energy energy_of(const ScoreProblem& problem, const Combination& combination);

/// Σ_j E[(q_jᵀ S_t x_j)²], minus the same constant part.
double energy_of(const ScoreProblem& problem);

}  // namespace regroup
