// The requested kv heads of each layer, checked against the model.
#pragma once

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

/// Whether all layers with attention have the same number.
bool is_uniform(const std::vector<std::int64_t>& kv_heads);

}  // namespace regroup
