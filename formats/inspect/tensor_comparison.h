// How far two tensors of one shape are apart, read part by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "formats/checkpoint/tensor_reader.h"
#include "formats/dtype/dtype.h"

namespace regroup {

struct TensorComparison {
  bool same_bytes = true;  ///< and so the same dtype
  /// Whether both could be read as numbers. What follows is of numbers, and zero where not.
  bool readable = true;
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  ///< elements of different value
  double largest = 0.0;         ///< absolute difference; infinite where only one is finite
  double mean = 0.0;            ///< absolute difference
  double cosine = 1.0;          ///< 0 where one of them, and only one, is zero throughout

  bool same_values() const { return same_bytes || (readable && different == 0); }
};

/// Compares two tensors of the same number of elements. Identical bytes are not decoded.
/// `progress` is told the bytes of the first tensor in each part, and may throw.
TensorComparison compare_tensors(const TensorReader& a, const TensorReader& b,
                                 const std::function<void(std::uint64_t bytes)>& progress = {});

/// The same of a tensor with bytes in memory, of `dtype`.
TensorComparison compare_tensors(DType dtype, std::span<const std::byte> a, const TensorReader& b);

}  // namespace regroup
