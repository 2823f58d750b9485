// The cost of serving a model with fewer kv heads: memory for weights and cache, and bytes read per
// generated token. Uses headers only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/inspect/kv_cache_size.h"
#include "formats/model/model.h"

namespace regroup {

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

}  // namespace regroup
