#include "formats/inspect/kv_cache_size.h"

#include <algorithm>
#include <numeric>

namespace regroup {
namespace {

std::uint64_t sum_of(const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

// Bytes of the keys and values of one token per layer, 0 without attention. Block types take whole
// blocks.
std::vector<std::uint64_t> bytes_per_layer(const ModelSpec& spec, AttentionRole role,
                                           const std::vector<std::int64_t>& kv_heads, DType dtype) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    const bool attends = spec.attention(role, i).present();
    const auto elements = static_cast<std::uint64_t>(attends ? kv_heads[i] * spec.head_dim : 0);
    const std::uint64_t in_block = block_elements(dtype);
    bytes.push_back(2 * ((elements + in_block - 1) / in_block) * block_bytes(dtype));
  }
  return bytes;
}

}  // namespace

DType cache_dtype_of(DType weights) { return is_pooling_dtype(weights) ? weights : DType::kF16; }

DType cache_dtype_of(const ModelSpec& spec, const Checkpoint& checkpoint) {
  for (const LayerTensors& layer : spec.layers) {
    if (layer.attention.present()) {
      return cache_dtype_of(checkpoint.at(layer.attention.k.weight).dtype);
    }
  }
  return DType::kF16;
}

std::uint64_t KvCacheCost::per_token() const { return sum_of(self); }

std::uint64_t KvCacheCost::cross_per_token() const { return sum_of(cross); }

std::uint64_t KvCacheCost::at(std::uint64_t tokens) const {
  return (per_token() - unlimited) * std::min(tokens, window.value_or(tokens)) +
         (unlimited + cross_per_token()) * tokens;
}

std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec, DType dtype) {
  return kv_cache_cost(spec, spec.kv_heads, spec.cross_kv_heads, dtype);
}

std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec,
                                         const std::vector<std::int64_t>& self_heads,
                                         const std::vector<std::int64_t>& cross_heads,
                                         DType dtype) {
  if (!spec.causal) {
    return std::nullopt;
  }
  KvCacheCost cost;
  cost.self = bytes_per_layer(spec, AttentionRole::kSelf, self_heads, dtype);
  if (spec.has_encoder()) {
    cost.cross = bytes_per_layer(spec, AttentionRole::kCross, cross_heads, dtype);
  }
  if (spec.sliding_window) {
    cost.window = static_cast<std::uint64_t>(*spec.sliding_window);
    for (std::size_t i = 0; i < cost.self.size(); ++i) {
      cost.unlimited += spec.layers[i].without_window ? cost.self[i] : 0;
    }
  }
  return cost;
}

}  // namespace regroup
