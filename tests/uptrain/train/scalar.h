// Scalars that optimizers take.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

namespace regroup {

/// An fp32 scalar tensor.
inline at::Tensor scalar(double value) {
  return at::scalar_tensor(value, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace regroup
