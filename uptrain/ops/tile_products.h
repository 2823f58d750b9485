// Small products of bf16 matrices with fp32 sums on a CPU, by the oneDNN kernels that LibTorch
// exposes.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace regroup {

/// Two vertically adjacent bf16 numbers of a matrix, packed in 32 bits.
using Pair = std::uint32_t;

/// [m, k] times [k, n]; k is even, n 16, 32, 48 or 64.
struct ProductSizes {
  std::int64_t m, n, k;
};

/// The first factor: contiguous rows, `stride` numbers apart.
struct ProductRows {
  const c10::BFloat16* data;
  std::int64_t stride;
};

/// The product, likewise; `keep` accumulates.
struct ProductSums {
  float* data;
  std::int64_t stride;
  bool keep;
};

/// Whether multiply() works with this LibTorch on this processor.
bool can_multiply_pairs();

/// sums = rows · pairs, on one thread. pairs: rows 2r and 2r + 1 of the second factor packed, [k/2,
/// n].
void multiply(const ProductSizes& sizes, const ProductRows& rows, const Pair* pairs,
              const ProductSums& sums);

/// Releases the processor's tile state. A thread must call this after its last product.
void release_products();

}  // namespace regroup
