#include "converter/pooling/aligned.h"

#include <cmath>
#include <tuple>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "converter/pooling/planes.h"

namespace regroup {
namespace {

constexpr int kMostSweeps = 60;
constexpr double kSmallestGain = 1e-9;  // of the power of the mean, per sweep

// The rotation R that maximises tr(P Rᵀ).
at::Tensor nearest_rotation(const at::Tensor& matrix) {
  const auto [u, s, vh] = at::linalg_svd(matrix, /*full_matrices=*/false);
  return at::matmul(u, vh);
}

// E|Σ R_j x_j|².
double power_of_sum(const at::Tensor& gram, const at::Tensor& rotations) {
  return at::einsum("ica,iajb,jcb->", {rotations, gram, rotations}).item<double>();
}

// Σ over i < `count`, i ≠ j of R_i E[x_i x_jᵀ]: [d, d].
at::Tensor pull_on(std::int64_t j, std::int64_t count, const at::Tensor& gram,
                   const at::Tensor& rotations) {
  const at::Tensor column = gram.select(2, j);  // [n, d, d]
  const at::Tensor all =
      at::matmul(rotations.narrow(0, 0, count), column.narrow(0, 0, count)).sum(0);
  return j < count ? all - at::matmul(rotations.select(0, j), column.select(0, j)) : all;
}

// Turns one head after the other to the sum of the rest until that gains nothing.
at::Tensor improve_rotations(const at::Tensor& gram, at::Tensor rotations) {
  const std::int64_t n = gram.size(0);
  double power = power_of_sum(gram, rotations);
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    for (std::int64_t j = 0; j < n; ++j) {
      rotations.select(0, j).copy_(nearest_rotation(pull_on(j, n, gram, rotations)));
    }
    const double now = power_of_sum(gram, rotations);
    if (now <= power * (1.0 + kSmallestGain)) {
      break;
    }
    power = now;
  }
  return rotations;
}

// The better of two starts: heads as they are, and each turned to those before it.
at::Tensor align_free(const GroupProblem& problem) {
  const std::int64_t n = problem.heads();
  const at::Tensor one =
      at::eye(problem.head_dim(), problem.gram.options()).unsqueeze(0).repeat({n, 1, 1});
  at::Tensor in_turn = one.clone();
  for (std::int64_t j = 1; j < n; ++j) {
    in_turn.select(0, j).copy_(nearest_rotation(pull_on(j, j, problem.gram, in_turn)));
  }
  const at::Tensor from_turns = improve_rotations(problem.gram, in_turn);
  const at::Tensor from_one = improve_rotations(problem.gram, one.clone());
  return power_of_sum(problem.gram, from_turns) >= power_of_sum(problem.gram, from_one) ? from_turns
                                                                                        : from_one;
}

// z/|z|, or 1 for 0.
at::Tensor phase_of(const at::Tensor& z) {
  return at::polar(at::ones_like(at::real(z)), z.angle());
}

// E|Σ z_j x_j|² in every plane: [P].
at::Tensor plane_power(const at::Tensor& gram, const at::Tensor& phases) {
  return at::real(at::einsum("pi,pij,pj->p", {phases.conj(), gram, phases}));
}

at::Tensor improve_phases(const at::Tensor& gram, at::Tensor phases) {
  const at::Tensor own = gram.diagonal(0, 1, 2);  // [P, n]
  double power = plane_power(gram, phases).sum().item<double>();
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    for (std::int64_t j = 0; j < phases.size(1); ++j) {
      const at::Tensor pull =
          (gram.select(1, j) * phases).sum(1) - own.select(1, j) * phases.select(1, j);
      phases.select(1, j).copy_(phase_of(pull));
    }
    const double now = plane_power(gram, phases).sum().item<double>();
    if (now <= power * (1.0 + kSmallestGain)) {
      break;
    }
    power = now;
  }
  return phases;
}

// Unit factors [P, n]: the better of two starts in each plane.
at::Tensor align_planes(const at::Tensor& gram) {
  const auto [values, vectors] = at::linalg_eigh(gram);
  const at::Tensor spectral =
      improve_phases(gram, phase_of(vectors.select(2, gram.size(1) - 1).contiguous()));
  const at::Tensor plain = improve_phases(gram, at::ones_like(spectral));
  const at::Tensor better = plane_power(gram, spectral) >= plane_power(gram, plain);
  return at::where(better.unsqueeze(1), spectral, plain);
}

// The mean's scale that gives it the mean power of the heads.
double power_scale(const GroupProblem& problem, const at::Tensor& mix) {
  const double shared = power_of_sum(problem.gram, mix);
  const double usual = at::einsum("iaia->i", {problem.gram}).mean().item<double>();
  return shared > 0.0 && usual > 0.0 ? std::sqrt(usual / shared) : 1.0;
}

}  // namespace

Combination solve_aligned(const GroupProblem& problem) {
  if (problem.basis.fixed()) {
    return mean_combination(problem);
  }
  const at::Tensor rotations = at::zeros_like(problem.weight);  // [n, d, d]
  if (!problem.basis.free.empty()) {
    put_free_part(align_free(free_part(problem)), problem.basis, rotations);
  }
  if (!problem.basis.planes.empty()) {
    put_planes(align_planes(planes_of(problem).gram), problem.basis, rotations);
  }
  const double scale = power_scale(problem, rotations);
  return {rotations * scale, rotations.transpose(1, 2).contiguous()};
}

}  // namespace regroup
