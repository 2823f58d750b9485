#include "formats/inspect/layer_summary.h"

#include "formats/inspect/kv_cache_size.h"
#include "formats/inspect/model_parts.h"

namespace regroup {
namespace {

// Adds the parameters and bytes of the layer's tensors that belong to the summary's role.
void count_tensors(LayerSummary& summary, const LayerTensors& layer, const Checkpoint& checkpoint) {
  for (const auto& [name, part] : parts_of_layer(layer)) {
    const bool of_cross = part == ModelPart::kCross;
    const TensorInfo* tensor = checkpoint.find(name);
    if (of_cross == (summary.role == AttentionRole::kCross) && tensor != nullptr) {
      summary.parameters += static_cast<std::uint64_t>(tensor->elements());
      summary.bytes += tensor->bytes();
    }
  }
}

std::optional<std::uint64_t> kv_bytes(const std::optional<KvCacheCost>& cache, AttentionRole role,
                                      std::size_t layer) {
  if (!cache || role == AttentionRole::kEncoder) {
    return std::nullopt;
  }
  return (role == AttentionRole::kCross ? cache->cross : cache->self)[layer];
}

}  // namespace

std::vector<LayerSummary> summarize_layers(const ModelSpec& config, const Checkpoint& checkpoint) {
  const ModelSpec spec = with_stored_heads(config, checkpoint);
  const auto cache = kv_cache_cost(spec, cache_dtype_of(spec, checkpoint));
  std::vector<LayerSummary> layers;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      LayerSummary layer{role, i, spec.attention(role, i).present() ? spec.query_heads : 0,
                         spec.kv_heads_of(role)[i], config.kv_heads_of(role)[i]};
      // Cross-attention sees the whole source. No known encoder has a window either.
      layer.window = role == AttentionRole::kSelf ? spec.window_of(spec.layers[i]) : std::nullopt;
      count_tensors(layer, spec.stack(role)[i], checkpoint);
      layer.kv_bytes_per_token = kv_bytes(cache, role, i);
      layers.push_back(layer);
    }
  }
  return layers;
}

}  // namespace regroup
