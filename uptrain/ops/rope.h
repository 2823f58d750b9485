// Positions: rotations, sinusoids and relative biases.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

// Rotary position embedding: rotates pairs of dimensions by the position: dimension i with i + R/2
// (GPT-NeoX, Llama), or 2i with 2i + 1 (GPT-J). Su et al., RoFormer,
// https://arxiv.org/abs/2104.09864

/// Cosines and sines of the angles of T positions.
struct RopeTable {
  at::Tensor cosine;  ///< [T, R/2]
  at::Tensor sine;    ///< [T, R/2]
  bool interleaved = false;
};

/// The table of positions first … first+length-1 in a sequence of `context` tokens, which only
/// dynamic scaling uses: position · theta^(-2i/R), scaled as the spec says. Computed in fp64 and
/// rounded once, to the dtype in `options`.
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t first, std::int64_t length,
                          std::int64_t context, const at::TensorOptions& options);

/// Caches angles, computed for many positions at a time: each step of decoding needs one more.
class RopePositions {
 public:
  /// Computes angles as in sequences of `context` tokens.
  RopePositions(const RopeSpec& spec, std::int64_t context, const at::TensorOptions& options)
      : spec_(spec), context_(context), options_(options) {}

  RopeTable at(std::int64_t first, std::int64_t length);

 private:
  RopeSpec spec_;
  std::int64_t context_;
  at::TensorOptions options_;
  std::int64_t begin_ = 0, end_ = 0;  ///< of the table
  RopeTable table_;
};

/// Rotates the leading R dimensions of each head; the others are unchanged. x: [B, heads, T, d].
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

// Sinusoidal positions. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5

/// The embeddings of positions first … first+length-1, [length, width]: half of each row are the
/// sines of position · 10000^(-i / steps), i = 0 … width/2 - 1, the other half the cosines.
/// Computed in fp64 and rounded once, to the dtype in `options`. `width` is even, `steps` positive.
at::Tensor sinusoids(std::int64_t first, std::int64_t length, std::int64_t width,
                     std::int64_t steps, const at::TensorOptions& options);

// T5's relative position bias: one learned number per query head and bucket of distances, added to
// the scores (Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683).

/// The bucket, 0 to buckets - 1, of a key `distance` positions after the query (before it if
/// negative). Half of the buckets hold one distance each, the others grow logarithmically up to
/// `max_distance`, and the last holds all larger distances. In bidirectional attention each side
/// has half of the buckets; if `causal`, keys after the query share bucket 0.
std::int64_t relative_bucket(const RelativeBiasSpec& spec, std::int64_t distance, bool causal);

/// Buckets of distances on a device. They are computed on the host, since the boundaries between
/// buckets depend on its logarithm, and kept: each pass over a batch needs the same.
class RelativeBuckets {
 public:
  explicit RelativeBuckets(const RelativeBiasSpec& spec) : spec_(spec) {}

  /// The buckets of distances 1 - keys … queries - 1: int64 [keys + queries - 1].
  at::Tensor of(std::int64_t keys, std::int64_t queries, bool causal, at::Device device);

 private:
  RelativeBiasSpec spec_;
  std::array<at::Tensor, 2> known_;  // of distances -n … n; bidirectional, causal
};

/// The bias of every key for every query of a sequence: table [buckets, H] -> [1, H, T, T], with
/// -inf for the keys after a query if `causal`. For queries from position `first` on only: [1, H, T
/// - first, T].
at::Tensor relative_bias(const at::Tensor& table, RelativeBuckets& buckets, std::int64_t length,
                         bool causal, std::int64_t first = 0);

}  // namespace regroup
