// Indices of free features and RoPE planes among the features of a head.
//
// Shapes: P planes, f free features, n heads, d features.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

/// The features of a HeadBasis as tensors of a device.
struct BasisIndices {
  at::Tensor free;            ///< int64 [f]
  at::Tensor a, b;            ///< the first and the second feature of each plane, int64 [P]
  std::int64_t head_dim = 0;  ///< d

  BasisIndices() = default;
  BasisIndices(const HeadBasis& basis, c10::Device device);

  bool has_free() const { return free.size(0) > 0; }
  bool rotates() const { return a.size(0) > 0; }
};

/// Writes complex factors [P, n] into the planes of real, contiguous matrices [n, d, d].
void put_rope_planes(const at::Tensor& factors, const BasisIndices& basis,
                     const at::Tensor& matrices);

/// Writes matrices [n, f, f] of the free features to their rows and columns in [n, d, d].
void put_free(const at::Tensor& part, const BasisIndices& basis, const at::Tensor& matrices);

}  // namespace regroup
