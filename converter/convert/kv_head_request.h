// How many kv heads each layer keeps: as asked, or by a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Reads "8" (every layer) or "8,8,4,…" (one per layer). Throws kUsage for anything else.
std::vector<std::int64_t> parse_kv_heads(std::string_view text);

/// `request` for each layer of one role; 0 for a layer without attention. Throws kUsage if a
/// layer's request does not divide its kv heads, or if the list has the wrong length.
std::vector<std::int64_t> resolve_kv_heads(const std::vector<std::int64_t>& request,
                                           const ModelSpec& spec,
                                           AttentionRole role = AttentionRole::kSelf);

// Distributes kv heads over layers within a budget of cache bytes per token.

/// One option for a layer.
struct LayerOption {
  std::int64_t kv_heads = 0;
  std::uint64_t bytes = 0;  ///< of keys and values, per token
  double cost = 0.0;        ///< loss of the model if only this layer changes
};

/// The option of each layer, as an index, with the least sum of costs among those whose bytes
/// together are at most `budget`: exactly, by dynamic programming over multiples of the bytes'
/// greatest common divisor. Prefers fewer bytes at equal costs. Throws kUsage if nothing fits,
/// kBadInput naming layer and kv heads if a cost is NaN or infinite.
std::vector<std::size_t> choose_within(const std::vector<std::vector<LayerOption>>& layers,
                                       std::uint64_t budget);

}  // namespace regroup
