// Heads that RoPE rotates, as complex numbers: one per plane, feature a + i·feature b.
//
// Shapes: P planes, n heads, d features.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "converter/pooling/combination.h"

namespace regroup {

/// One group's problem in each plane by itself.
struct PlaneProblem {
  at::Tensor gram;    ///< E[conj(x_i) x_j], complex [P, n, n], Hermitian
  at::Tensor weight;  ///< [P, n]
};

PlaneProblem planes_of(const GroupProblem& problem);

/// Writes complex factors [P, n] into the planes of real matrices [n, d, d].
void put_planes(const at::Tensor& factors, const HeadBasis& basis, const at::Tensor& matrices);

/// The features of a problem that are in no plane, as a problem of its own.
GroupProblem free_part(const GroupProblem& problem);

/// The inverse: matrices [n, f, f] of the free features to where they stand in [n, d, d].
void put_free_part(const at::Tensor& part, const HeadBasis& basis, const at::Tensor& matrices);

}  // namespace regroup
