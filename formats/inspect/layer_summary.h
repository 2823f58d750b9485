// Summarises each layer: heads, window, parameters, KV cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// One attention of one layer, with the layer's MLP and norms. In a decoder layer, MLP and norms
/// are counted with self-attention, not with cross-attention.
struct LayerSummary {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t query_heads = 0;  ///< 0 in a layer without attention
  std::int64_t kv_heads = 0;     ///< as the tensors' shapes say
  std::int64_t config_kv_heads = 0;
  std::optional<std::int64_t> window = std::nullopt;  ///< tokens a query sees
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
  /// Bytes of KV cache per token; none if there is no cache.
  std::optional<std::uint64_t> kv_bytes_per_token = std::nullopt;
};

/// All layers, role by role. Throws kBadInput if shapes do not give a whole number of heads.
std::vector<LayerSummary> summarize_layers(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup
