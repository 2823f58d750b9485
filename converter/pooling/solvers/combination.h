// The problem of sharing one head in a group, and its solution, as small matrices.
//
// Shapes: n heads. Of a head's features f may be mixed freely, and P pairs lie in planes that RoPE
// rotates, in which a head is one complex number: feature a + i·feature b. Head j has features x_j,
// of which an output reads R_j x_j. The shared head is x = Σ mix_j x_j, and back_j x replaces x_j,
// so its readers become R_j back_j.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "converter/pooling/solvers/rope_planes.h"

namespace regroup {

/// The problem for the free features, in double, on any device.
struct FreeProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, f, n, f]
  at::Tensor weight;  ///< R_jᵀ R_j summed over the readers of head j, [n, f, f]

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t features() const { return gram.size(1); }
};

struct FreeSolution {
  at::Tensor mix, back;  ///< [n, f, f]
};

/// The same for each plane separately. Rotating readers weigh both features equally, and terms that
/// couple two planes vanish on average over all rotations.
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
  BasisIndices basis;
  std::optional<FreeProblem> free;
  std::optional<PlaneProblem> planes;

  std::int64_t heads() const { return free ? free->heads() : planes->heads(); }
  c10::Device device() const { return free ? free->gram.device() : planes->gram.device(); }
};

struct GroupSolution {
  std::optional<FreeSolution> free;
  std::optional<PlaneSolution> planes;
};

/// Expected squares, additive over parts.
struct Energy {
  double lost = 0.0;    ///< Σ_j E|R_j (x_j − back_j x)|²
  double all = 0.0;     ///< Σ_j E|R_j x_j|²
  double shared = 0.0;  ///< E|x|²
  double usual = 0.0;   ///< the mean of E|x_j|²

  /// 1 − lost / all; below 0: worse than removing the heads.
  double kept() const { return all > 0.0 ? 1.0 - lost / all : 1.0; }
  /// √(shared / usual)
  double norm() const;
};

/// Numbers without dimensions of one device, in one copy to the host.
std::vector<double> numbers_of(at::TensorList scalars);

/// Head numbers as int64 [m] on a device.
at::Tensor rows_of(std::span<const std::int64_t> heads, c10::Device device);

/// The problem of a subset of its heads.
GroupProblem part_of(const GroupProblem& problem, std::span<const std::int64_t> heads);

/// The plain mean of the heads.
FreeSolution mean_of(const FreeProblem& problem);
PlaneSolution mean_of(const PlaneProblem& problem);

/// One head replaces all, in its own basis.
FreeSolution head_of(const FreeProblem& problem, std::int64_t head);
PlaneSolution head_of(const PlaneProblem& problem, std::int64_t head);

Energy energy_of(const GroupProblem& problem, const GroupSolution& solution);

/// Mix or back as real matrices [n, d, d] of all features.
struct Combination {
  at::Tensor mix, back;
};
Combination matrices_of(const GroupSolution& solution, const BasisIndices& basis);

}  // namespace regroup
