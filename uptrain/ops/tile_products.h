// Small products of bf16 matrices with sums in fp32, by the matrix kernels of oneDNN that LibTorch
// hands through, on a CPU.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace regroup {

/// Two bf16 numbers that stand one above the other in a matrix, side by side in 32 bits.
using Pair = std::uint32_t;

/// [m, k] times [k, n]; k is even, n 16, 32, 48 or 64.
struct ProductSizes {
  std::int64_t m, n, k;
};

/// The first factor: rows in one piece, `stride` numbers from one to the next.
struct ProductRows {
  const c10::BFloat16* data;
  std::int64_t stride;
};

/// The product, likewise; `keep` adds to what is there.
struct ProductSums {
  float* data;
  std::int64_t stride;
  bool keep;
};

/// Whether multiply() works with this LibTorch on this processor.
bool can_multiply_pairs();

/// sums = rows · pairs, of one thread. pairs: rows 2r and 2r + 1 of the second factor in one,
/// [k/2, n].
void multiply(const ProductSizes& sizes, const ProductRows& rows, const Pair* pairs,
              const ProductSums& sums);

/// To be called by a thread after its last product: gives back what the processor has set aside.
void release_products();

}  // namespace regroup
