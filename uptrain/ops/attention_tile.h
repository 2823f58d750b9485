// Attention on one tile of scores, 64 queries by up to kTileKeys keys, on a CPU. A tile has a row
// per key, so sums over keys are sums of rows, each a vector of queries.
//
// Matrix kernels read the second factor of a product in pairs: the elements of rows 2r and 2r + 1
// of a column, packed in 32 bits. Missing queries of a partial tile are zeros.
#pragma once

#include <array>
#include <cstdint>

#include <c10/util/BFloat16.h>

namespace regroup {

// Small products of bf16 matrices with fp32 sums on a CPU, by the oneDNN kernels that LibTorch
// exposes.

/// Two vertically adjacent bf16 numbers of a matrix, packed in 32 bits.
using Pair = std::uint32_t;

/// [m, k] times [k, n]; k is even, n 16, 32, 48 or 64.
struct ProductSizes {
  std::int64_t m, n, k;
};

/// Contiguous rows, `stride` numbers apart.
template <typename Number>
struct MatrixRows {
  Number* data;
  std::int64_t stride;
};

/// The first factor of a product, or the rows of some heads.
using ProductRows = MatrixRows<const c10::BFloat16>;

/// The product; `keep` accumulates.
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

inline constexpr std::int64_t kTileQueries = 64;
inline constexpr std::int64_t kTileKeys = 128;  ///< at most

/// One number per query of a tile.
using QueryNumbers = std::array<float, kTileQueries>;

/// Turns the products of a tile's queries and keys into scores.
struct TileScores {
  float* products;      ///< [keys, 64]
  std::int64_t keys;    ///< how many, kTileKeys at most
  std::int64_t hidden;  ///< key r is hidden from the queries before r + hidden
  float scale;          ///< of a product
  const float* bias;    ///< [keys], added to the scaled product; or null
};

/// Online softmax over the keys of the tiles seen so far.
struct RunningSoftmax {
  QueryNumbers largest, sum;
  QueryNumbers factor;  ///< rescales the weights of earlier tiles
};

/// Adds one tile: computes its weights exp(score - largest) in pairs of keys, [⌈keys/2⌉, 64].
/// Overwrites the products with the scores.
void add_tile(const TileScores& scores, RunningSoftmax& softmax, Pair* weights);

/// Inputs and outputs of the gradient with respect to a tile's scores.
struct TileGradients {
  const float* by_weights;      ///< [keys, 64], products of outer gradients and values
  const QueryNumbers& log_sum;  ///< of softmax; infinite for a missing query
  const QueryNumbers& along;    ///< outer gradient · output
  c10::BFloat16* weights;       ///< filled with softmax, [keys, 64]
  c10::BFloat16* by_products;   ///< filled with the gradient of the products, [keys, 64]
  Pair* by_products_pairs;      ///< the same in pairs of keys, [⌈keys/2⌉, 64]
};

void differentiate_tile(const TileScores& scores, const TileGradients& gradients);

/// Scales rows [width, 64] by a factor per query.
void scale_queries(float* rows, std::int64_t width, const QueryNumbers& factor);

/// Dot products of the rows of `count` queries, each [width]; zeros for missing queries.
void multiply_rows(const ProductRows& rows, const ProductRows& others, std::int64_t count,
                   std::int64_t width, QueryNumbers& products);

/// Writes the first `count` of sums [width, 64], scaled by a factor per query, as rows of bf16.
void write_queries(const float* sums, std::int64_t count, std::int64_t width,
                   const QueryNumbers& factor, const MatrixRows<c10::BFloat16>& rows);

/// `count` rows of heads as [width, 64] in pairs of dimensions: [width/2, 64].
void pack_dimensions(const ProductRows& rows, std::int64_t count, std::int64_t width, Pair* packed);

/// The same in pairs of queries, `block` dimensions after one another: [width/block, 32, block].
void pack_queries(const ProductRows& rows, std::int64_t count, std::int64_t width,
                  std::int64_t block, Pair* packed);

}  // namespace regroup
