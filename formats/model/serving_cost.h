// What serving costs: bytes of the KV cache and of weights by kv heads and context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/model/model.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"

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

// The cost of serving a model with fewer kv heads: memory for weights and cache, and bytes read per
// generated token. Uses headers only.

struct ServingCost {
  /// The value for `regroup convert --kv-heads`; none: the model as it is.
  std::optional<std::int64_t> kv_heads;
  ModelSpec spec;  ///< with the remaining heads
  std::uint64_t weight_bytes = 0;
  std::uint64_t step_weight_bytes = 0;  ///< the part read to generate one token
  /// All experts' weights, a part of weight_bytes. Several tokens read more of them than one.
  std::uint64_t expert_bytes = 0;
  KvCacheCost cache;

  /// Bytes of the weights and the cache of `batch` sequences of `tokens` tokens.
  std::uint64_t memory(std::uint64_t tokens, std::uint64_t batch) const;
  /// The most sequences of `tokens` tokens that fit in `memory` bytes together with the weights.
  std::uint64_t largest_batch(std::uint64_t memory, std::uint64_t tokens) const;
  /// The greatest length of `batch` sequences that fit; none if a sliding window bounds the cache
  /// and it fits at any length.
  std::optional<std::uint64_t> largest_context(std::uint64_t memory, std::uint64_t batch) const;
  /// Bytes read to generate one token in each of `batch` sequences of `tokens` tokens. Divided by
  /// memory bandwidth, this is a lower bound on the time per step. Of experts it counts the share
  /// that the tokens are expected to use, see ModelSpec::share_of_experts().
  std::uint64_t bytes_per_step(std::uint64_t tokens, std::uint64_t batch) const;
};

/// Which roles get fewer kv heads, and the dtype of the cache.
struct ServingQuestion {
  std::vector<AttentionRole> roles = {AttentionRole::kSelf, AttentionRole::kCross};
  std::optional<DType> cache_dtype;  ///< none: the model's own
};

/// The model as it is, then with every smaller number of kv heads it can be converted to in the
/// requested roles, in descending order. Throws kUsage for a model without a KV cache, kBadInput if
/// shapes do not give a whole number of heads.
std::vector<ServingCost> serving_costs(const Model& model, const ServingQuestion& question);

/// `wanted` tokens, limited by the positions in the config and by the sequence length of the
/// model's recorded uptraining.
std::int64_t usual_context(const Model& model, std::int64_t wanted);

/// A one-line warning if `length` tokens exceed the positions in the config, otherwise empty.
/// Dynamic RoPE scaling has no limit.
std::string warning_of_positions(const Model& model, std::int64_t length);

/// The same, and also warns if `length` exceeds the sequence length of the model's uptraining.
std::string warning_of_context(const Model& model, std::int64_t length);

}  // namespace regroup
