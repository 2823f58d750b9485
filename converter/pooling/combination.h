// Combinations of heads, and their average under RoPE.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/heads/pool_method.h"
#include "converter/pooling/head_moments.h"

namespace regroup {

// The problem of sharing one head in a group, and its solution, as small matrices.
//
// Shapes: n heads. Of a head's features f may be mixed freely, and P pairs lie in planes that RoPE
// rotates, in which a head is one complex number: feature a + i·feature b. Head j has features x_j,
// of which an output reads R_j x_j. The shared head is x = Σ mix_j x_j, and back_j x replaces x_j,
// so its readers become R_j back_j.

/// How heads are shared: real matrices of all features, [n, d, d]; of the free ones, [n, f, f]; or
/// of the planes, complex [P, n].
struct Combination {
  at::Tensor mix, back;
};

/// The problem for the free features, in double, on any device.
struct FreeProblem {
  at::Tensor gram;    ///< E[x_i x_jᵀ], [n, f, n, f]
  at::Tensor weight;  ///< R_jᵀ R_j summed over the readers of head j, [n, f, f]

  std::int64_t heads() const { return gram.size(0); }
  std::int64_t features() const { return gram.size(1); }
  at::Tensor own() const;  ///< E[x_j x_jᵀ], [n, f, f]
};

/// The same for each plane separately. Rotating readers weigh both features equally, and terms that
/// couple two planes vanish on average over all rotations.
struct PlaneProblem {
  at::Tensor gram;    ///< E[conj(x_i) x_j], complex [P, n, n], Hermitian
  at::Tensor weight;  ///< mean of the readers' weights of both features, [P, n]

  std::int64_t heads() const { return gram.size(1); }
  at::Tensor own() const;  ///< E|x_j|², [P, n]
};

/// Keys have free features, planes or both; values free features.
struct GroupProblem {
  BasisIndices basis;
  std::optional<FreeProblem> free;
  std::optional<PlaneProblem> planes;

  std::int64_t heads() const { return free ? free->heads() : planes->heads(); }
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

/// The energy of these sums, numbers without dimensions in the order of its members; `usual` is
/// summed over `count` heads. Copies them to the host at once.
Energy energy_in(at::TensorList sums, std::int64_t count = 1);

/// Head numbers as int64 [m] on a device.
at::Tensor rows_of(std::span<const std::int64_t> heads, c10::Device device);

/// The problem of a subset of its heads.
GroupProblem part_of(const GroupProblem& problem, std::span<const std::int64_t> heads);

/// A combination of all features and its energy.
struct HeadSolution {
  Combination heads;
  Energy energy;
};

/// Shares one head by that method: the plain mean, the head `chosen` in its own basis, or for
/// kLowrank the head from which all heads of the group can be restored with the least error.
///
/// That one minimises Σ_j E|R_j (x_j − back_j x)|² over all mix and back. For free features: with
/// L_j L_jᵀ = R_jᵀ R_j, x holds the f leading principal components of the stacked Lᵀ_j x_j (Eckart
/// and Young 1936), and back_j the regression of x_j on them. In a plane x is the leading principal
/// component of the n complex numbers. Scaled so that x has the mean power of the heads.
HeadSolution solve_group(PoolMethod method, const GroupProblem& problem, std::int64_t chosen);

/// Σ_j E|R_j x_j|²
double energy_of(const GroupProblem& problem);

/// The energy that kLowrank keeps, Σ_j E|R_j x_j|² minus the minimum: computed as the sum of the
/// leading eigenvalues, for a fraction of the work.
double energy_kept_by_lowrank(const GroupProblem& problem);

// Averages of RoPE's relative rotation between keys and queries over the distances at which a head
// attends.
//
// Shapes: n heads of d features, T distances. The query sees a key t positions before it as S_t k.
// S_t = R_{-t} rotates every plane back by t times its frequency and leaves free features
// unchanged.

/// Expectations over t of matrices and vectors transformed by S_t. In the basis of eigenvectors of
/// S_t, with eigenvalues e^{iωt}, an average multiplies the elements by φ(ω_a − ω_b), where φ(ω) =
/// E e^{iωt} is the characteristic function of the distances: 1 if features do not rotate relative
/// to each other, near 0 if they do so many times.
class RopeAverage {
 public:
  /// distances: [n, T], the fraction of each head's attention at each distance; rows sum to 1.
  /// `both_sides`: half of it before the query and half after it, so that φ is real. Computes on
  /// their device.
  RopeAverage(const HeadBasis& basis, const at::Tensor& distances, bool both_sides = false);

  /// The averages of a subset of heads, int64 [m].
  RopeAverage of(const at::Tensor& heads) const;

  /// E[S Y Sᵀ] and E[Sᵀ Y S] for Y [n, d, d].
  at::Tensor seen(const at::Tensor& matrices) const;
  at::Tensor unseen(const at::Tensor& matrices) const;

  /// E[S]: [n, d, d].
  const at::Tensor& mean() const { return mean_; }

 private:
  /// A unitary matrix with two numbers in a row: row m is first[m]·e_a + second[m]·e_b.
  struct Pairs {
    at::Tensor a, b, first, second;
    at::Tensor times_rows(const at::Tensor& matrices) const;
    at::Tensor conjugate(const at::Tensor& matrices) const;  // U Y Uᴴ
  };
  void find_eigenvectors(const HeadBasis& basis, c10::Device device);

  Pairs into_, out_;    ///< into the basis of eigenvectors, and out of it
  at::Tensor factors_;  ///< φ(ω_a − ω_b), complex [n, d, d]
  at::Tensor mean_;
};

// One shared key head for a group with RoPE that preserves the queries' scores best. n heads of d
// features; queries of head j have E[q qᵀ] = Q_j; keys are x_j, and the shared key is x = Σ_j mix_j
// x_j, which the queries read as back_j x.

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
