// What keys and values take in memory while a model generates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/dtype/dtype.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The type in which keys and values are kept where the weights that make them are of `weights`:
/// the same where one computes in it, else F16.
DType cache_dtype_of(DType weights);

/// That of the first keys there are; F16 where there are none.
DType cache_dtype_of(const ModelSpec& spec, const Checkpoint& checkpoint);

/// Bytes that tokens leave in the cache, layer by layer.
struct KvCacheCost {
  std::vector<std::uint64_t> self;   ///< for each token of the (decoder's) text
  std::vector<std::uint64_t> cross;  ///< for each token of an encoder's text; empty without one
  /// The most tokens of its own text that a layer keeps: those a sliding window shows.
  std::optional<std::uint64_t> window;

  /// Over all layers, of one token that no window has dropped.
  std::uint64_t per_token() const;
  std::uint64_t cross_per_token() const;
  /// Of one sequence of `tokens`, and in encoder-decoders of a source of as many.
  std::uint64_t at(std::uint64_t tokens) const;
};

/// What a model with the kv heads of `spec` keeps, in elements of `dtype`; nothing for one that
/// keeps nothing from token to token (encoders by themselves).
std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec, DType dtype);

/// The same with other kv heads per layer, of the only stack or decoder and of cross-attention.
std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec,
                                         const std::vector<std::int64_t>& self_heads,
                                         const std::vector<std::int64_t>& cross_heads, DType dtype);

}  // namespace regroup
