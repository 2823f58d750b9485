#include "converter/pooling/lowrank.h"

#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "converter/pooling/planes.h"

namespace regroup {
namespace {

// Components with less than this share of the leading one's power are rounding errors.
constexpr double kSmallest = 1e-14;

// 1/√λ, or 0 for what is no component at all. `largest` broadcasts.
at::Tensor inverse_root(const at::Tensor& powers, const at::Tensor& largest) {
  const at::Tensor counts = (powers > kSmallest * largest).logical_and(powers > 0.0);
  return at::where(counts, at::where(counts, powers, at::ones_like(powers)).rsqrt(),
                   at::zeros_like(powers));
}

// L with L Lᵀ = A for positive semidefinite A [n, d, d].
at::Tensor root_of(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return vectors * values.clamp_min(0.0).sqrt().unsqueeze(1);
}

Combination solve_free(const GroupProblem& problem) {
  const std::int64_t n = problem.heads();
  const std::int64_t d = problem.head_dim();
  const at::Tensor root = root_of(problem.weight);  // L, [n, d, d]
  // BᵀCB: the Gram matrix of all L_jᵀ x_j, [n·d, n·d].
  const at::Tensor left = at::bmm(root.transpose(1, 2), problem.gram.reshape({n, d, n * d}));
  const at::Tensor both =
      at::matmul(left.view({n * d, n, d}).transpose(0, 1), root);  // [n, n·d, d]
  const at::Tensor gram = both.transpose(0, 1).reshape({n * d, n * d});
  const auto [values, vectors] = at::linalg_eigh((gram + gram.t()) / 2);  // ascending
  const at::Tensor leading = values.narrow(0, n * d - d, d);
  const at::Tensor scaled =
      vectors.narrow(1, n * d - d, d) * inverse_root(leading, values.narrow(0, n * d - 1, 1));
  // mix_j = (L_j U_j Σ⁻¹)ᵀ; back_j = E[x_j xᵀ] since E[x xᵀ] = 1.
  Combination result;
  result.mix = at::bmm(root, scaled.view({n, d, d})).transpose(1, 2).contiguous();
  result.back = at::matmul(problem.gram.reshape({n * d, n * d}),
                           result.mix.permute({0, 2, 1}).reshape({n * d, d}))
                    .view({n, d, d});
  return result;
}

// Complex factors of every plane.
struct PlaneFactors {
  at::Tensor mix, back;  // [P, n]
};

PlaneFactors solve_planes(const PlaneProblem& problem) {
  // Planes that no query looks at: any shared head will do, all heads count alike.
  const at::Tensor read = problem.weight.sum(1, true) > 0.0;
  const at::Tensor root =
      at::where(read, problem.weight, at::ones_like(problem.weight)).clamp_min(0.0).sqrt();
  const auto [values, vectors] =
      at::linalg_eigh(problem.gram * (root.unsqueeze(2) * root.unsqueeze(1)));
  const std::int64_t last = values.size(1) - 1;
  const at::Tensor power = values.narrow(1, last, 1);  // [P, 1]
  PlaneFactors factors;
  factors.mix = root * vectors.select(2, last) * inverse_root(power, power);
  factors.back = at::einsum("pi,pij->pj", {factors.mix.conj(), problem.gram});
  // Each plane as strong as it usually is.
  const at::Tensor usual =
      at::real(problem.gram.diagonal(0, 1, 2)).mean(1, true).clamp_min(0.0).sqrt();  // [P, 1]
  const at::Tensor scale = at::where(usual > 0.0, usual, at::ones_like(usual));
  return {factors.mix * scale, factors.back / scale};
}

// Scales the shared head to the mean power of the heads. back takes the inverse.
void restore_power(const GroupProblem& problem, Combination& combination) {
  const at::Tensor shared =
      at::einsum("ica,iajb,jcb->", {combination.mix, problem.gram, combination.mix});
  const at::Tensor usual = at::einsum("iaia->i", {problem.gram}).mean();
  if (shared.item<double>() > 0.0 && usual.item<double>() > 0.0) {
    const at::Tensor scale = (usual / shared).sqrt();
    combination.mix = combination.mix * scale;
    combination.back = combination.back / scale;
  }
}

}  // namespace

Combination solve_lowrank(const GroupProblem& problem) {
  if (problem.basis.fixed()) {
    return mean_combination(problem);
  }
  Combination result{at::zeros_like(problem.weight), at::zeros_like(problem.weight)};
  if (!problem.basis.free.empty()) {
    const GroupProblem part = free_part(problem);
    Combination solved = solve_free(part);
    restore_power(part, solved);
    put_free_part(solved.mix, problem.basis, result.mix);
    put_free_part(solved.back, problem.basis, result.back);
  }
  if (!problem.basis.planes.empty()) {
    const PlaneFactors factors = solve_planes(planes_of(problem));
    put_planes(factors.mix, problem.basis, result.mix);
    put_planes(factors.back, problem.basis, result.back);
  }
  return result;
}

}  // namespace regroup
