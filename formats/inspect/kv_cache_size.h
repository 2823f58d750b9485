// The memory of a model's KV cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/dtype/dtype.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The dtype of the cache for k and v projections of dtype `weights`: the same if it can be used
/// for computation, otherwise F16.
DType cache_dtype_of(DType weights);

/// The same, for the first key projection of the model; F16 if there is none.
DType cache_dtype_of(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Bytes of KV cache per token, layer by layer.
struct KvCacheCost {
  std::vector<std::uint64_t> self;   ///< per token of the (decoder's) sequence
  std::vector<std::uint64_t> cross;  ///< per source token; empty without an encoder
  /// The most tokens that a layer with a sliding window keeps.
  std::optional<std::uint64_t> window;
  std::uint64_t unlimited = 0;  ///< per token, of the layers that have no window although others do

  /// Bytes of one token over all layers, inside the window.
  std::uint64_t per_token() const;
  std::uint64_t cross_per_token() const;
  /// Bytes of one sequence of `tokens`; encoder-decoders add a source of the same length.
  std::uint64_t at(std::uint64_t tokens) const;
};

/// The cache of a model with the kv heads of `spec` and elements of `dtype`; nothing for
/// encoder-only models, which have no cache.
std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec, DType dtype);

/// The same with other kv heads per layer for the decoder (or only stack) and cross-attention.
std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec,
                                         const std::vector<std::int64_t>& self_heads,
                                         const std::vector<std::int64_t>& cross_heads, DType dtype);

}  // namespace regroup
