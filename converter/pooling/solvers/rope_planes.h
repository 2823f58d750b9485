// Indices of free features and RoPE planes among the features of a head.
//
// Shapes: P planes, f free features, n heads, d features.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

/// The first and the second feature of each plane, int64 [P].
struct RopePlaneSides {
  at::Tensor a, b;
};
RopePlaneSides sides_of(const HeadBasis& basis);

/// Writes complex factors [P, n] into the planes of real matrices [n, d, d].
void put_rope_planes(const at::Tensor& factors, const HeadBasis& basis, const at::Tensor& matrices);

/// Writes matrices [n, f, f] of the free features to their rows and columns in [n, d, d].
void put_free(const at::Tensor& part, const HeadBasis& basis, const at::Tensor& matrices);

}  // namespace regroup
