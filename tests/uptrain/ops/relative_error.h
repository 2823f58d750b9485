// The relative error of a tensor.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace regroup {

/// ‖found − expected‖ / ‖expected‖, in fp64.
inline double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

}  // namespace regroup
