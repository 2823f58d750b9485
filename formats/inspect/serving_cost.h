// What it takes to serve a model with fewer kv heads: memory for weights and cache, and the bytes
// that each generated token reads. From headers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/inspect/kv_cache_size.h"
#include "formats/model/model.h"

namespace regroup {

struct ServingCost {
  /// As `regroup convert --kv-heads` would be asked for; none: the model as it is.
  std::optional<std::int64_t> kv_heads;
  ModelSpec spec;  ///< with the heads that are left
  std::uint64_t weight_bytes = 0;
  std::uint64_t step_weight_bytes = 0;  ///< of them, those that generating one token reads
  KvCacheCost cache;

  /// Bytes of weights and of the cache of `batch` sequences of `tokens`.
  std::uint64_t memory(std::uint64_t tokens, std::uint64_t batch) const;
  /// The most sequences of `tokens` that fit in `memory` bytes beside the weights.
  std::uint64_t largest_batch(std::uint64_t memory, std::uint64_t tokens) const;
  /// The longest `batch` sequences that fit; none where a window bounds the cache and it fits.
  std::optional<std::uint64_t> largest_context(std::uint64_t memory, std::uint64_t batch) const;
  /// Bytes read to generate one token in each of `batch` sequences of `tokens`: a lower bound of
  /// the time is this over the memory's bandwidth.
  std::uint64_t bytes_per_step(std::uint64_t tokens, std::uint64_t batch) const;
};

/// Which kv heads the costs are counted for, and how they are kept.
struct ServingQuestion {
  std::vector<AttentionRole> roles = {AttentionRole::kSelf, AttentionRole::kCross};
  std::optional<DType> cache_dtype;  ///< none: the model's own
};

/// The model as it is, then with every smaller number of kv heads it can be converted to in the
/// roles asked for, most first. Throws kUsage for a model that keeps no keys and values from token
/// to token, kBadInput where shapes allow no whole number of heads.
std::vector<ServingCost> serving_costs(const Model& model, const ServingQuestion& question);

}  // namespace regroup
