#include "converter/pooling/solvers/aligned.h"

#include <cmath>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace regroup {
namespace {

constexpr int kMostAlignSweeps = 60;
constexpr double kSmallestAlignGain = 1e-5;  // per sweep, as a fraction of the power of the mean

// Σ over i < `count`, i ≠ j of R_i E[x_i x_jᵀ]: [f, f].
at::Tensor pull_on(std::int64_t j, std::int64_t count, const at::Tensor& gram,
                   const at::Tensor& rotations) {
  at::Tensor pull = at::zeros_like(rotations.select(0, j));
  for (std::int64_t i = 0; i < count; ++i) {
    if (i != j) {
      pull.addmm_(rotations.select(0, i), gram.select(0, i).select(1, j));
    }
  }
  return pull;
}

// Sets the rotation R of head j to the one that maximises tr(R pullᵀ) (Schönemann 1966). Returns
// the increase of E|Σ R_i x_i|².
at::Tensor turn(std::int64_t j, const at::Tensor& pull, const at::Tensor& rotations) {
  const at::Tensor rotation = rotations.select(0, j);
  const auto [u, s, vh] = at::linalg_svd(pull, /*full_matrices=*/false);
  const at::Tensor before = (rotation * pull).sum();
  rotation.copy_(at::matmul(u, vh));
  return 2 * (s.sum() - before);
}

// E|Σ R_j x_j|².
double power_of_sum(const at::Tensor& gram, const at::Tensor& rotations) {
  const std::int64_t n = gram.size(0), f = gram.size(1);
  const at::Tensor wide = rotations.transpose(0, 1).reshape({f, n * f});
  return (at::matmul(wide, gram.view({n * f, n * f})) * wide).sum().item<double>();
}

// Returns rotations [n, f, f]. Aligns each head to those before it, and then repeatedly to the sum
// of the others until there is no gain.
at::Tensor align(const at::Tensor& gram) {
  const std::int64_t n = gram.size(0);
  at::Tensor rotations = at::eye(gram.size(1), gram.options()).unsqueeze(0).repeat({n, 1, 1});
  for (std::int64_t j = 1; j < n; ++j) {
    turn(j, pull_on(j, j, gram, rotations), rotations);
  }
  double power = power_of_sum(gram, rotations);
  for (int sweep = 0; sweep < kMostAlignSweeps; ++sweep) {
    at::Tensor gains = at::zeros({}, gram.options());
    for (std::int64_t j = 0; j < n; ++j) {
      gains += turn(j, pull_on(j, n, gram, rotations), rotations);
    }
    const auto gain = gains.item<double>();
    if (gain <= power * kSmallestAlignGain) {
      break;
    }
    power += gain;
  }
  return rotations;
}

// z/|z|, or 1 for 0.
at::Tensor phase_of(const at::Tensor& z) {
  return at::polar(at::ones_like(at::real(z)), z.angle());
}

// E|Σ z_j x_j|² in every plane: [P].
at::Tensor plane_power(const at::Tensor& gram, const at::Tensor& phases) {
  return at::real((phases.conj() * at::matmul(gram, phases.unsqueeze(2)).squeeze(2)).sum(1));
}

at::Tensor improve_phases(const at::Tensor& gram, at::Tensor phases) {
  const at::Tensor own = gram.diagonal(0, 1, 2);  // [P, n]
  double power = plane_power(gram, phases).sum().item<double>();
  for (int sweep = 0; sweep < kMostAlignSweeps; ++sweep) {
    for (std::int64_t j = 0; j < phases.size(1); ++j) {
      const at::Tensor pull =
          (gram.select(1, j) * phases).sum(1) - own.select(1, j) * phases.select(1, j);
      phases.select(1, j).copy_(phase_of(pull));
    }
    const double now = plane_power(gram, phases).sum().item<double>();
    if (now <= power * (1.0 + kSmallestAlignGain)) {
      break;
    }
    power = now;
  }
  return phases;
}

// Returns unit factors [P, n]: in each plane the better result of two starts.
at::Tensor align_planes(const at::Tensor& gram) {
  const auto [values, vectors] = at::linalg_eigh(gram);
  const at::Tensor spectral =
      improve_phases(gram, phase_of(vectors.select(2, gram.size(1) - 1).contiguous()));
  const at::Tensor plain = improve_phases(gram, at::ones_like(spectral));
  const at::Tensor better = plane_power(gram, spectral) >= plane_power(gram, plain);
  return at::where(better.unsqueeze(1), spectral, plain);
}

// Scales the mean to the mean power of the heads.
double power_scale(double shared, double usual) {
  return shared > 0.0 && usual > 0.0 ? std::sqrt(usual / shared) : 1.0;
}

}  // namespace

FreeSolution solve_aligned(const FreeProblem& problem) {
  const at::Tensor rotations = align(problem.gram);
  const std::int64_t size = problem.heads() * problem.features();
  const double usual =
      problem.gram.view({size, size}).trace().item<double>() / static_cast<double>(problem.heads());
  return {rotations * power_scale(power_of_sum(problem.gram, rotations), usual),
          rotations.transpose(1, 2).contiguous()};
}

PlaneSolution solve_aligned(const PlaneProblem& problem) {
  const at::Tensor phases = align_planes(problem.gram);
  const double usual = at::real(problem.gram.diagonal(0, 1, 2)).mean(1).sum().item<double>();
  const double shared = plane_power(problem.gram, phases).sum().item<double>();
  return {phases * power_scale(shared, usual), phases.conj().resolve_conj()};
}

}  // namespace regroup
