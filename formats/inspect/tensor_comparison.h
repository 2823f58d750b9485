// Compares two tensors of the same shape, reading them in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "formats/checkpoint/tensor_reader.h"
#include "formats/dtype/dtype.h"

namespace regroup {

struct TensorComparison {
  bool same_bytes = true;  ///< implies the same dtype
  /// Whether both can be read as numbers. If not, the fields below keep their defaults.
  bool readable = true;
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  ///< elements whose values differ
  double largest = 0.0;         ///< absolute difference; infinite if only one is finite
  double mean = 0.0;            ///< absolute difference
  double cosine = 1.0;          ///< 0 if exactly one of them is all zeros

  bool same_values() const { return same_bytes || (readable && different == 0); }
};

/// Compares two tensors with the same number of elements. Identical bytes are not decoded.
/// `progress`, unless it is empty, receives the bytes of `a` in each part, and may throw.
TensorComparison compare_tensors(const TensorReader& a, const TensorReader& b,
                                 const std::function<void(std::uint64_t bytes)>& progress = {});

/// The same, comparing bytes in memory of type `dtype` with a stored tensor.
TensorComparison compare_tensors(DType dtype, std::span<const std::byte> a, const TensorReader& b);

}  // namespace regroup
