#include "uptrain/ops/attention_tile.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <vector>

#include <ATen/native/CPUBlas.h>

#include "formats/base/error.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

REGROUP_INLINE Pair pair_of(float first, float second) {
  const auto low = narrow<c10::BFloat16>(first).x;
  const auto high = narrow<c10::BFloat16>(second).x;
  return static_cast<Pair>(low) | (static_cast<Pair>(high) << 16);
}

REGROUP_INLINE float bias_of(const TileScores& scores, std::int64_t key) {
  return scores.bias == nullptr ? 0.0F : scores.bias[key];
}

// Overwrites the products with scores and finds the maximum of each query.
REGROUP_INLINE void finish_scores(const TileScores& scores, float* largest) {
  const float scale = scores.scale;
  for (std::int64_t key = 0; key < scores.keys; ++key) {
    float* const row = scores.products + key * kTileQueries;
    const float bias = bias_of(scores, key);
    const auto first = static_cast<std::int32_t>(key + scores.hidden);
#pragma omp simd
    for (std::int32_t i = 0; i < kTileQueries; ++i) {
      const float seen = row[i] * scale + bias;
      const float score = i < first ? -kInfinity : seen;
      const float before = largest[i];
      row[i] = score;
      largest[i] = score > before ? score : before;
    }
  }
}

REGROUP_INLINE void add_weights(const TileScores& scores, const float* largest, float* sum,
                                Pair* weights) {
  for (std::int64_t key = 0; key < scores.keys; key += 2) {
    const float* const row = scores.products + key * kTileQueries;
    const bool alone = key + 1 == scores.keys;
    const float* const next = alone ? row : row + kTileQueries;
    const float present = alone ? 0.0F : 1.0F;
    Pair* const to = weights + key / 2 * kTileQueries;
#pragma omp simd
    for (std::int32_t i = 0; i < kTileQueries; ++i) {
      const float weight = exponential(row[i] - largest[i]);
      const float other = present * exponential(next[i] - largest[i]);
      sum[i] += weight + other;
      to[i] = pair_of(weight, other);
    }
  }
}

// Computes the weights and gradients of one key. The gradients are also stored in fp32.
REGROUP_INLINE void differentiate_key(const TileScores& scores, const TileGradients& gradients,
                                      std::int64_t key, float* wide_gradients) {
  const std::int64_t begin = key * kTileQueries;
  const float* const row = scores.products + begin;
  const float* const by_weights = gradients.by_weights + begin;
  const float* const log_sum = gradients.log_sum.data();
  const float* const along = gradients.along.data();
  c10::BFloat16* const weights = gradients.weights + begin;
  c10::BFloat16* const by_products = gradients.by_products + begin;
  const float scale = scores.scale;
  const float bias = bias_of(scores, key);
  const auto first = static_cast<std::int32_t>(key + scores.hidden);
#pragma omp simd
  for (std::int32_t i = 0; i < kTileQueries; ++i) {
    const float seen = exponential(row[i] * scale + bias - log_sum[i]);
    const float weight = i < first ? 0.0F : seen;
    const float gradient = weight * (by_weights[i] - along[i]) * scale;
    weights[i].x = narrow<c10::BFloat16>(weight).x;
    by_products[i].x = narrow<c10::BFloat16>(gradient).x;
    wide_gradients[i] = gradient;
  }
}

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

REGROUP_VECTORISED void add_tile(const TileScores& scores, RunningSoftmax& softmax, Pair* weights) {
  const QueryNumbers before = softmax.largest;
  finish_scores(scores, softmax.largest.data());
#pragma omp simd
  for (std::int32_t i = 0; i < kTileQueries; ++i) {
    softmax.factor[i] = exponential(before[i] - softmax.largest[i]);
    softmax.sum[i] *= softmax.factor[i];
  }
  add_weights(scores, softmax.largest.data(), softmax.sum.data(), weights);
}

REGROUP_VECTORISED void differentiate_tile(const TileScores& scores,
                                           const TileGradients& gradients) {
  for (std::int64_t key = 0; key < scores.keys; key += 2) {
    QueryNumbers one;
    QueryNumbers other = {};
    differentiate_key(scores, gradients, key, one.data());
    if (key + 1 < scores.keys) {
      differentiate_key(scores, gradients, key + 1, other.data());
    }
    Pair* const to = gradients.by_products_pairs + key / 2 * kTileQueries;
#pragma omp simd
    for (std::int32_t i = 0; i < kTileQueries; ++i) {
      to[i] = pair_of(one[i], other[i]);
    }
  }
}

REGROUP_VECTORISED void scale_queries(float* rows, std::int64_t width, const QueryNumbers& factor) {
  const float* const numbers = factor.data();
  for (std::int64_t row = 0; row < width; ++row) {
#pragma omp simd
    for (std::int32_t i = 0; i < kTileQueries; ++i) {
      rows[row * kTileQueries + i] *= numbers[i];
    }
  }
}

REGROUP_VECTORISED void multiply_rows(const ProductRows& rows, const ProductRows& others,
                                      std::int64_t count, std::int64_t width,
                                      QueryNumbers& products) {
  products.fill(0.0F);
  for (std::int64_t i = 0; i < count; ++i) {
    const c10::BFloat16* const row = rows.data + i * rows.stride;
    const c10::BFloat16* const other = others.data + i * others.stride;
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t dimension = 0; dimension < width; ++dimension) {
      sum += wide(row[dimension]) * wide(other[dimension]);
    }
    products[static_cast<std::size_t>(i)] = sum;
  }
}

REGROUP_VECTORISED void write_queries(const float* sums, std::int64_t count, std::int64_t width,
                                      const QueryNumbers& factor,
                                      const MatrixRows<c10::BFloat16>& rows) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float each = factor[static_cast<std::size_t>(i)];
    c10::BFloat16* const to = rows.data + i * rows.stride;
#pragma omp simd
    for (std::int64_t dimension = 0; dimension < width; ++dimension) {
      to[dimension].x = narrow<c10::BFloat16>(sums[dimension * kTileQueries + i] * each).x;
    }
  }
}

void pack_dimensions(const ProductRows& rows, std::int64_t count, std::int64_t width,
                     Pair* packed) {
  for (std::int64_t i = 0; i < kTileQueries; ++i) {
    for (std::int64_t pair = 0; pair < width / 2; ++pair) {
      Pair found = 0;
      if (i < count) {
        std::memcpy(&found, rows.data + i * rows.stride + 2 * pair, sizeof(Pair));
      }
      packed[pair * kTileQueries + i] = found;
    }
  }
}

void pack_queries(const ProductRows& rows, std::int64_t count, std::int64_t width,
                  std::int64_t block, Pair* packed) {
  const auto number = [&](std::int64_t i, std::int64_t dimension) {
    return i < count ? static_cast<Pair>(rows.data[i * rows.stride + dimension].x) : Pair{0};
  };
  for (std::int64_t i = 0; i < kTileQueries; i += 2) {
    for (std::int64_t begin = 0; begin < width; begin += block) {
      Pair* const to = packed + begin * kTileQueries / 2 + i / 2 * block;
      for (std::int64_t dimension = 0; dimension < block; ++dimension) {
        to[dimension] = number(i, begin + dimension) | (number(i + 1, begin + dimension) << 16);
      }
    }
  }
}

}  // namespace regroup
