// What each layer of a model is: its heads, its window, its parameters, its share of the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// One attention of one layer, with the MLP and norms beside it; those of a decoder's layer stand
/// with its self-attention, not with its cross-attention.
struct LayerSummary {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t query_heads = 0;  ///< 0 in a layer without attention
  std::int64_t kv_heads = 0;     ///< as the tensors' shapes say
  std::int64_t config_kv_heads = 0;
  std::optional<std::int64_t> window = std::nullopt;  ///< tokens a query sees
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  /// Of keys and values in the model's cache; none where nothing is kept.
  std::optional<std::uint64_t> kv_bytes_per_token = std::nullopt;
};

/// All layers, role by role. Throws kBadInput where shapes allow no whole number of heads.
std::vector<LayerSummary> summarize_layers(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup
