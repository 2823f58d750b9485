// One group of heads that are to share one: the problem, and a solution, as small matrices.
//
// Shapes: n heads of d features. Head j has features x_j [d], of which an output reads R_j x_j. The
// shared head is x = Σ mix_j x_j, and back_j x stands for x_j, so that its readers see R_j back_j.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "converter/pooling/head_basis.h"

namespace regroup {

/// What of the heads matters for the choice, all in double.
struct GroupProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, d, n, d]
  at::Tensor weight;  ///< R_jᵀ R_j summed over the readers of head j, [n, d, d]
  HeadBasis basis;

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t head_dim() const { return gram.size(1); }
};

struct Combination {
  at::Tensor mix;   ///< [n, d, d]
  at::Tensor back;  ///< [n, d, d]
};

/// How much of the heads' effect a combination keeps.
struct Fidelity {
  double energy = 1.0;  ///< 1 − Σ_j E|R_j (x_j − back_j x)|² / Σ_j E|R_j x_j|²; below 0: worse than
                        ///< leaving the heads out
  double norm = 1.0;    ///< √(E|x|² / mean of E|x_j|²)
};

/// The weights of a problem whose heads RoPE rotates, averaged over all rotations: what couples two
/// planes vanishes, and both features of a plane weigh alike. Of free features unchanged.
at::Tensor averaged_over_rotations(const at::Tensor& weight, const HeadBasis& basis);

/// Each head stands for itself in equal parts.
Combination mean_combination(const GroupProblem& problem);

Fidelity fidelity_of(const GroupProblem& problem, const Combination& combination);

}  // namespace regroup
