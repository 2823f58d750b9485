// One key head for a group whose keys RoPE rotates: what lets the queries' scores stay as they are.
//
// Shapes: n heads of d features. Queries of head j have E[q qᵀ] = Q_j; keys are x_j, and the shared
// key is x = Σ_j mix_j x_j, which the queries read as back_j x.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "converter/pooling/solvers/combination.h"
#include "converter/pooling/solvers/rope_average.h"

namespace regroup {

/// All of a group's keys that scores depend on, in double.
struct ScoreProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, d, n, d]
  at::Tensor mean;    ///< E[x_j], [n, d]
  at::Tensor weight;  ///< Q_j, [n, d, d]
  RopeAverage rope;   ///< of the n heads

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t features() const { return gram.size(1); }
};

/// The problem of some of its heads.
ScoreProblem part_of(const ScoreProblem& problem, std::span<const std::int64_t> heads);

/// Minimises Σ_j E[(q_jᵀ S_t x_j − q_jᵀ back_j S_t x)²] less what is the same for all keys of a
/// query on average, which the softmax does not see: over queries, keys and distances t, as if they
/// were independent. back_j need not keep RoPE's planes apart, as nothing rotates after it, and
/// neither does mix. With one of them given the other has a closed form; they take turns, from
/// `start` on, until little changes. Scaled so that x has the mean power of the heads.
Combination solve_scores(const ScoreProblem& problem, const Combination& start);

/// The energies of any combination: lost and all as minimised above, shared and usual of the keys.
Energy energy_of(const ScoreProblem& problem, const Combination& combination);

/// Σ_j E[(q_jᵀ S_t x_j)²], less the same.
double energy_of(const ScoreProblem& problem);

}  // namespace regroup
