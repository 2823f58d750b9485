#include "converter/pooling/lowrank.h"

#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace regroup {
namespace {

// Components with less than this fraction of the leading one's power are rounding errors.
constexpr double kSmallest = 1e-14;

// 1/√λ, or 0 for negligible components. `largest` broadcasts.
at::Tensor inverse_root(const at::Tensor& powers, const at::Tensor& largest) {
  const at::Tensor counts = (powers > kSmallest * largest).logical_and(powers > 0.0);
  return at::where(counts, at::where(counts, powers, at::ones_like(powers)).rsqrt(),
                   at::zeros_like(powers));
}

// Returns L with L Lᵀ = A for positive semidefinite A [n, d, d].
at::Tensor root_of(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return vectors * values.clamp_min(0.0).sqrt().unsqueeze(1);
}

// BᵀCB: the Gram matrix of all L_jᵀ x_j, [n·f, n·f].
at::Tensor weighted_gram(const FreeProblem& problem, const at::Tensor& root) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor left = at::bmm(root.transpose(1, 2), problem.gram.reshape({n, f, n * f}));
  const at::Tensor both = at::bmm(left.view({n * f, n, f}).transpose(0, 1), root);  // [n, n·f, f]
  const at::Tensor gram = both.transpose(0, 1).reshape({n * f, n * f});
  return (gram + gram.t()) / 2;
}

at::Tensor weighted_gram(const PlaneProblem& problem, const at::Tensor& root) {
  return problem.gram * (root.unsqueeze(2) * root.unsqueeze(1));
}

// Scales the shared head to the mean power of the heads, and `back` by the inverse.
void restore_power(const FreeProblem& problem, FreeSolution& solution) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor mix = solution.mix.transpose(0, 1).reshape({f, n * f});
  const at::Tensor shared = (at::matmul(mix, problem.gram.view({n * f, n * f})) * mix).sum();
  const at::Tensor usual = problem.gram.view({n * f, n * f}).trace() / static_cast<double>(n);
  const at::Tensor known = (shared > 0.0).logical_and(usual > 0.0);
  const at::Tensor scale = at::where(known, (usual / shared).sqrt(), at::ones_like(usual));
  solution.mix = solution.mix * scale;
  solution.back = solution.back / scale;
}

}  // namespace

FreeSolution solve_lowrank(const FreeProblem& problem) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor root = root_of(problem.weight);                               // L, [n, f, f]
  const auto [values, vectors] = at::linalg_eigh(weighted_gram(problem, root));  // ascending
  const at::Tensor leading = values.narrow(0, n * f - f, f);
  const at::Tensor scaled =
      vectors.narrow(1, n * f - f, f) * inverse_root(leading, values.narrow(0, n * f - 1, 1));
  // mix_j = (L_j U_j Σ⁻¹)ᵀ; back_j = E[x_j xᵀ] since E[x xᵀ] = 1.
  FreeSolution result;
  result.mix = at::bmm(root, scaled.reshape({n, f, f})).transpose(1, 2).contiguous();
  result.back = at::matmul(problem.gram.view({n * f, n * f}),
                           result.mix.permute({0, 2, 1}).reshape({n * f, f}))
                    .view({n, f, f});
  restore_power(problem, result);
  return result;
}

PlaneSolution solve_lowrank(const PlaneProblem& problem) {
  // In planes that no query reads, any shared head works. All heads get equal weight there.
  const at::Tensor read = problem.weight.sum(1, true) > 0.0;
  const at::Tensor root =
      at::where(read, problem.weight, at::ones_like(problem.weight)).clamp_min(0.0).sqrt();
  const auto [values, vectors] = at::linalg_eigh(weighted_gram(problem, root));
  const std::int64_t last = values.size(1) - 1;
  const at::Tensor power = values.narrow(1, last, 1);  // [P, 1]
  PlaneSolution result;
  result.mix = root * vectors.select(2, last) * inverse_root(power, power);
  result.back = at::matmul(result.mix.conj().unsqueeze(1), problem.gram).squeeze(1);
  // Scales each plane to its mean power.
  const at::Tensor usual =
      at::real(problem.gram.diagonal(0, 1, 2)).mean(1, true).clamp_min(0.0).sqrt();  // [P, 1]
  const at::Tensor scale = at::where(usual > 0.0, usual, at::ones_like(usual));
  return {result.mix * scale, result.back / scale};
}

double energy_kept_by_lowrank(const GroupProblem& problem) {
  double kept = 0.0;
  if (problem.free) {
    const std::int64_t f = problem.free->features();
    const at::Tensor values =
        at::linalg_eigvalsh(weighted_gram(*problem.free, root_of(problem.free->weight)));
    kept += values.narrow(0, values.size(0) - f, f).clamp_min(0.0).sum().item<double>();
  }
  if (problem.planes) {
    const at::Tensor root = problem.planes->weight.clamp_min(0.0).sqrt();
    const at::Tensor values = at::linalg_eigvalsh(weighted_gram(*problem.planes, root));
    kept += values.select(1, values.size(1) - 1).sum().item<double>();
  }
  return kept;
}

}  // namespace regroup
