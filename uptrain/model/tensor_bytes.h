// A tensor's numbers as bytes.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Views of a contiguous tensor in host memory, valid as long as its storage.
inline std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}
inline std::span<std::byte> mutable_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace regroup
