#include "uptrain/ops/tile_products.h"

#include <algorithm>
#include <exception>
#include <vector>

#include <ATen/native/CPUBlas.h>

#include "formats/base/error.h"

namespace regroup {
namespace {

// Support can only be determined by trying. The product of 32 ones and 32 twos must be 64.
bool try_pairs() {
  const std::vector<c10::BFloat16> ones(32 * 32, c10::BFloat16(1.0F));
  const std::vector<Pair> twos(16 * 32, 0x40004000U);
  std::vector<float> sums(32 * 32, 0.0F);
  try {
    multiply({32, 32, 32}, {ones.data(), 32}, twos.data(), {sums.data(), 32, false});
    release_products();
  } catch (const std::exception&) {
    return false;
  }
  return std::ranges::all_of(sums, [](float sum) { return sum == 64.0F; });
}

}  // namespace

bool can_multiply_pairs() {
  static const bool can = try_pairs();
  return can;
}

#ifdef CPUBLAS_BRGEMM_BF16BF16F32

void multiply(const ProductSizes& sizes, const ProductRows& rows, const Pair* pairs,
              const ProductSums& sums) {
  at::native::cpublas::brgemm(sizes.m, sizes.n, sizes.k, rows.stride, sizes.n, sums.stride,
                              sums.keep, rows.data, reinterpret_cast<const c10::BFloat16*>(pairs),
                              sums.data, /*is_vnni=*/true);
}

void release_products() { at::native::cpublas::brgemm_release(/*is_vnni=*/true); }

#else  // an older LibTorch

void multiply(const ProductSizes&, const ProductRows&, const Pair*, const ProductSums&) {
  throw_environment("this LibTorch has no products of pairs");
}

void release_products() {}

#endif

}  // namespace regroup
