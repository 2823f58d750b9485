// T5's relative position bias: one learned number per query head and bucket of distances, added to
// the scores (Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683).
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

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
