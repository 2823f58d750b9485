// Undefined tensors as LibTorch's operations take them.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace regroup {

inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace regroup
