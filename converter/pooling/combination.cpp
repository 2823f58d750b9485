#include "converter/pooling/combination.h"

#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

namespace regroup {
namespace {

// E|x|² of every head: [n].
at::Tensor powers(const at::Tensor& gram) { return at::einsum("iaia->i", {gram}); }

}  // namespace

at::Tensor averaged_over_rotations(const at::Tensor& weight, const HeadBasis& basis) {
  at::Tensor result = at::zeros_like(weight);
  for (const auto& [a, b] : basis.planes) {
    const at::Tensor mean =
        (weight.select(1, a).select(1, a) + weight.select(1, b).select(1, b)) / 2;
    result.select(1, a).select(1, a).copy_(mean);
    result.select(1, b).select(1, b).copy_(mean);
  }
  for (const std::int64_t a : basis.free) {
    for (const std::int64_t b : basis.free) {
      result.select(1, a).select(1, b).copy_(weight.select(1, a).select(1, b));
    }
  }
  return result;
}

Combination mean_combination(const GroupProblem& problem) {
  const at::Tensor one = at::eye(problem.head_dim(), problem.gram.options())
                             .unsqueeze(0)
                             .repeat({problem.heads(), 1, 1});
  return {one / static_cast<double>(problem.heads()), one};
}

Fidelity fidelity_of(const GroupProblem& problem, const Combination& combination) {
  // shared_j = E[x x_jᵀ], [n, d, d]; shared = E[x xᵀ], [d, d].
  const at::Tensor shared_j = at::einsum("ica,iajb->jcb", {combination.mix, problem.gram});
  const at::Tensor shared = at::einsum("jcb,jeb->ce", {shared_j, combination.mix});
  const at::Tensor own = problem.gram.diagonal(0, 0, 2).permute({2, 0, 1});  // [n, d, d]
  const at::Tensor cross = at::bmm(combination.back, shared_j);
  const at::Tensor error =
      own - cross - cross.transpose(1, 2) +
      at::bmm(at::matmul(combination.back, shared), combination.back.transpose(1, 2));
  const double lost = (problem.weight * error).sum().item<double>();
  const double all = (problem.weight * own).sum().item<double>();
  const double usual = powers(problem.gram).mean().item<double>();
  Fidelity fidelity;
  fidelity.energy = all > 0.0 ? 1.0 - lost / all : 1.0;
  fidelity.norm = usual > 0.0 ? std::sqrt(shared.trace().item<double>() / usual) : 1.0;
  return fidelity;
}

}  // namespace regroup
