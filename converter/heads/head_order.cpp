#include "converter/heads/head_order.h"

#include <algorithm>
#include <numeric>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

std::vector<std::int64_t> in_place(std::int64_t count) {
  std::vector<std::int64_t> heads(static_cast<std::size_t>(count));
  std::iota(heads.begin(), heads.end(), 0);
  return heads;
}

std::vector<std::vector<double>> moved_slopes(const HeadOrder& order, const ModelSpec& source,
                                              AttentionRole role) {
  std::vector<std::vector<double>> slopes = alibi_slopes_per_layer(source, role);
  for (std::size_t layer = 0; layer < slopes.size(); ++layer) {
    const std::vector<double> before = slopes[layer];
    const auto heads = order.heads(role, layer, source.query_heads);
    std::transform(heads.begin(), heads.end(), slopes[layer].begin(),
                   [&](std::int64_t head) { return before[static_cast<std::size_t>(head)]; });
  }
  return slopes;
}

void check_permutation(const HeadOrder::Place& place, std::vector<std::int64_t> heads,
                       const ModelSpec& source) {
  const auto [role, layer] = place;
  const std::vector<std::int64_t>& layers = source.kv_heads_of(role);
  const std::int64_t count = layer < layers.size() ? layers[layer] : 0;
  std::sort(heads.begin(), heads.end());
  if (heads != in_place(count)) {
    throw_usage("head order: {} layer {} needs a permutation of its {} kv heads", name_of(role),
                layer, count);
  }
}

}  // namespace

void HeadOrder::set(AttentionRole role, std::size_t layer, std::vector<std::int64_t> kv_heads) {
  if (kv_heads == in_place(std::ssize(kv_heads))) {
    orders_.erase({role, layer});
  } else {
    orders_[{role, layer}] = std::move(kv_heads);
  }
}

bool HeadOrder::moves(AttentionRole role, std::size_t layer) const {
  return orders_.contains({role, layer});
}

std::vector<std::int64_t> HeadOrder::heads(AttentionRole role, std::size_t layer,
                                           std::int64_t count) const {
  std::vector<std::int64_t> heads = in_place(count);
  const auto found = orders_.find({role, layer});
  if (found != orders_.end()) {
    const std::int64_t readers = count / std::ssize(found->second);
    for (std::int64_t h = 0; h < count; ++h) {
      const std::int64_t kv_head = found->second[static_cast<std::size_t>(h / readers)];
      heads[static_cast<std::size_t>(h)] = kv_head * readers + h % readers;
    }
  }
  return heads;
}

std::vector<std::size_t> layers_in_step(const ModelSpec& source, AttentionRole role,
                                        std::size_t layer) {
  if (source.positions != PositionKind::kRelativeBias || role == AttentionRole::kCross) {
    return {layer};
  }
  const std::vector<LayerTensors>& layers = source.stack(role);
  std::size_t first = layer;
  while (first > 0 && layers[first].relative_bias.empty()) {
    --first;
  }
  std::vector<std::size_t> found{first};
  for (std::size_t i = first + 1; i < layers.size() && layers[i].relative_bias.empty(); ++i) {
    found.push_back(i);
  }
  return found;
}

void check_order(const HeadOrder& order, const ModelSpec& source) {
  for (const auto& [place, heads] : order.orders()) {
    check_permutation(place, heads, source);
  }
  for (const auto& [place, heads] : order.orders()) {
    const auto [role, layer] = place;
    const auto queries = order.heads(role, layer, source.query_heads);
    for (const std::size_t other : layers_in_step(source, role, layer)) {
      if (order.heads(role, other, source.query_heads) != queries) {
        throw_usage(
            "head order: {} layers {} and {} share a relative bias, so their query heads need the "
            "same order",
            name_of(role), std::min(layer, other), std::max(layer, other));
      }
    }
  }
}

bool heads_can_move(const ModelSpec& source, AttentionRole role, std::size_t layer) {
  const std::vector<std::int64_t>& kv_heads = source.kv_heads_of(role);
  const std::vector<std::size_t> together = layers_in_step(source, role, layer);
  return std::all_of(together.begin(), together.end(),
                     [&](std::size_t other) { return kv_heads[other] == kv_heads[layer]; });
}

void move_slopes(const HeadOrder& order, const ModelSpec& source, ModelSpec& grouped) {
  if (order.empty() || source.positions != PositionKind::kAlibi ||
      grouped.positions != PositionKind::kAlibi) {
    return;
  }
  grouped.alibi.slopes = moved_slopes(order, source, AttentionRole::kSelf);
  if (source.has_encoder()) {
    grouped.alibi.encoder_slopes = moved_slopes(order, source, AttentionRole::kEncoder);
  }
}

}  // namespace regroup
