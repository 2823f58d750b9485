// One group of heads that are to share one: the problem, and a solution, as small matrices.
//
// Shapes: n heads. Of a head's features f may be mixed freely, and P pairs lie in planes that RoPE
// rotates, in which a head is one complex number: feature a + i·feature b. Head j has features x_j,
// of which an output reads R_j x_j. The shared head is x = Σ mix_j x_j, and back_j x stands for
// x_j, so that its readers see R_j back_j.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

/// What of the free features matters for the choice, all in double.
struct FreeProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, f, n, f]
  at::Tensor weight;  ///< R_jᵀ R_j summed over the readers of head j, [n, f, f]

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t features() const { return gram.size(1); }
};

struct FreeSolution {
  at::Tensor mix, back;  ///< [n, f, f]
};

/// The same in every plane by itself. Readers that rotate weigh both features alike, and what
/// couples two planes vanishes on average over all rotations.
struct PlaneProblem {
  at::Tensor gram;    ///< E[conj(x_i) x_j], complex [P, n, n], Hermitian
  at::Tensor weight;  ///< mean of the readers' weights of both features, [P, n]

  std::int64_t heads() const { return gram.size(1); }
};

struct PlaneSolution {
  at::Tensor mix, back;  ///< complex [P, n]
};

/// Keys have free features, planes or both; values free features.
struct GroupProblem {
  HeadBasis basis;
  std::optional<FreeProblem> free;
  std::optional<PlaneProblem> planes;

  std::int64_t heads() const { return free ? free->heads() : planes->heads(); }
};

struct GroupSolution {
  std::optional<FreeSolution> free;
  std::optional<PlaneSolution> planes;
};

/// Expected squares; those of several parts add up.
struct Energy {
  double lost = 0.0;    ///< Σ_j E|R_j (x_j − back_j x)|²
  double all = 0.0;     ///< Σ_j E|R_j x_j|²
  double shared = 0.0;  ///< E|x|²
  double usual = 0.0;   ///< the mean of E|x_j|²

  /// 1 − lost / all; below 0: worse than leaving the heads out.
  double kept() const { return all > 0.0 ? 1.0 - lost / all : 1.0; }
  /// √(shared / usual)
  double norm() const;
};

/// The problem of some of its heads.
GroupProblem part_of(const GroupProblem& problem, std::span<const std::int64_t> heads);

/// Each head stands for itself in equal parts.
FreeSolution mean_of(const FreeProblem& problem);
PlaneSolution mean_of(const PlaneProblem& problem);

/// One head stands for all, in its own basis.
FreeSolution head_of(const FreeProblem& problem, std::int64_t head);
PlaneSolution head_of(const PlaneProblem& problem, std::int64_t head);

Energy energy_of(const GroupProblem& problem, const GroupSolution& solution);

/// Mix or back as real matrices [n, d, d] of all features.
struct Combination {
  at::Tensor mix, back;
};
Combination matrices_of(const GroupSolution& solution, const HeadBasis& basis);

}  // namespace regroup
