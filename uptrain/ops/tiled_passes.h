// Attention in tiles: the elements of heads, and the forward and backward pass over preallocated
// memory. Shapes: see attention.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"
#include "uptrain/ops/attention_tile.h"

namespace regroup {

/// A tensor [B, n, T, d] with contiguous rows.
template <typename Number>
struct TiledTensor {
  Number* data;
  std::array<std::int64_t, 3> strides;

  Number* row(std::int64_t batch, std::int64_t head, std::int64_t position) const {
    return data + batch * strides[0] + head * strides[1] + position * strides[2];
  }
};

template <typename Number>
TiledTensor<Number> written(const at::Tensor& x) {
  return {x.mutable_data_ptr<Number>(), {x.stride(0), x.stride(1), x.stride(2)}};
}

inline TiledTensor<const c10::BFloat16> read(const at::Tensor& x) {
  return {x.const_data_ptr<c10::BFloat16>(), {x.stride(0), x.stride(1), x.stride(2)}};
}

/// Sizes and options of one call.
struct TiledShape {
  std::int64_t batch, heads, groups, queries, keys, width;
  float scale;
  bool causal;
  std::int64_t before;  ///< keys before the first query, if causal
  const float* bias;    ///< [H, S], or null

  TiledShape(const Heads& all, const TiledAttention& attention)
      : batch(all.q.size(0)),
        heads(all.q.size(1)),
        groups(all.k.size(1)),
        queries(all.q.size(2)),
        keys(all.k.size(2)),
        width(all.q.size(3)),
        scale(static_cast<float>(attention.scale)),
        causal(attention.causal),
        before(causal ? keys - queries : 0),
        bias(attention.bias.defined() ? attention.bias.const_data_ptr<float>() : nullptr) {}

  std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  std::int64_t tiles() const { return (queries + kTileQueries - 1) / kTileQueries; }
};

struct TilePlace {
  std::int64_t batch, head, first, count;

  /// Tile number `tile` of head number `index`, counted over all sequences.
  TilePlace(const TiledShape& shape, std::int64_t index, std::int64_t tile)
      : batch(index / shape.heads),
        head(index % shape.heads),
        first(tile * kTileQueries),
        count(std::min(kTileQueries, shape.queries - first)) {}
};

/// Calls the function for each tile of keys that a tile of queries sees.
template <typename Function>
void for_each_tile(const TiledShape& shape, const TilePlace& place, float* products,
                   const Function& function) {
  const std::int64_t seen = shape.causal ? shape.before + place.first + place.count : shape.keys;
  for (std::int64_t begin = 0; begin < seen; begin += kTileKeys) {
    const float* const bias =
        shape.bias == nullptr ? nullptr : shape.bias + place.head * shape.keys + begin;
    function(begin, TileScores{products, std::min(kTileKeys, seen - begin),
                               shape.causal ? begin - shape.before - place.first : -kTileKeys,
                               shape.scale, bias});
  }
}

struct TiledForward {
  TiledShape shape;
  TiledTensor<const c10::BFloat16> q, k, turned_v;
  TiledTensor<c10::BFloat16> output;
  float* log_sum;  ///< [B, H, T]
};

void attend_forward(const TiledForward& forward);

struct TiledBackward {
  TiledShape shape;
  TiledTensor<const c10::BFloat16> q, k, v, turned_k, output, outer;
  const float* log_sum;  ///< [B, H, T]
  TiledTensor<c10::BFloat16> by_q;
  TiledTensor<float> by_k, by_v;  ///< [B, H, S, d], of zeros
};

void attend_backward(const TiledBackward& backward);

}  // namespace regroup
