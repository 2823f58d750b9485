// How many kv heads each layer shall have, as asked for and as the model allows.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Reads "8" (every layer) or "8,8,4,…" (one per layer). Throws kUsage for anything else.
std::vector<std::int64_t> parse_kv_heads(std::string_view text);

/// `request` spread over the layers of one role. A layer without attention has none. Throws kUsage
/// where a layer's request does not divide the kv heads it has, or where the list's length is
/// wrong.
std::vector<std::int64_t> resolve_kv_heads(const std::vector<std::int64_t>& request,
                                           const ModelSpec& spec,
                                           AttentionRole role = AttentionRole::kSelf);

/// Whether all layers have the same number; those without attention, with none, left out.
bool is_uniform(const std::vector<std::int64_t>& kv_heads);

}  // namespace regroup
