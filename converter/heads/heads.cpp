#include "converter/heads/heads.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "converter/heads/move_heads.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

HeadBlocks head_blocks(const Shape& shape, bool input_major,
                       std::span<const std::int64_t> first_features, std::int64_t head_dim) {
  HeadBlocks blocks;
  blocks.first.assign(first_features.begin(), first_features.end());
  blocks.rows = head_dim;
  if (shape.size() < 2) {
    return blocks;
  }
  blocks.columns = shape[input_major ? 0 : 1];
  blocks.row_stride = input_major ? 1 : blocks.columns;
  blocks.column_stride = input_major ? shape[1] : 1;
  for (std::int64_t& first : blocks.first) {
    first *= blocks.row_stride;
  }
  return blocks;
}

std::vector<std::vector<std::int64_t>> heads_of_groups(std::int64_t before, std::int64_t groups,
                                                       std::int64_t after) {
  const std::int64_t members = before / groups;
  const std::int64_t copies = after / groups;
  std::vector<std::vector<std::int64_t>> heads(static_cast<std::size_t>(after));
  for (std::int64_t to = 0; to < after; ++to) {
    const std::int64_t group = to / copies;
    for (std::int64_t from = group * members; from < (group + 1) * members; ++from) {
      heads[static_cast<std::size_t>(to)].push_back(from);
    }
  }
  return heads;
}

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

namespace {

using Rows = std::vector<std::int64_t>;

Rows consecutive(std::size_t heads, std::int64_t head_dim) {
  Rows first(heads);
  for (std::size_t h = 0; h < heads; ++h) {
    first[h] = static_cast<std::int64_t>(h) * head_dim;
  }
  return first;
}

// Reads the heads that begin at these features of a tensor, in this order: [heads·d, D], or
// [heads·d] for a bias.
std::vector<double> read_features(const Checkpoint& checkpoint, const std::string& name,
                                  bool input_major, const Rows& features, std::int64_t head_dim) {
  const TensorInfo& tensor = checkpoint.at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  const HeadBlocks from = head_blocks(tensor.shape, input_major, features, head_dim);
  const auto rows = static_cast<std::int64_t>(features.size()) * head_dim;
  const Shape shape = tensor.shape.size() == 2 ? Shape{rows, from.columns} : Shape{rows};
  const HeadBlocks to = head_blocks(shape, false, consecutive(features.size(), head_dim), head_dim);
  std::vector<double> values(static_cast<std::size_t>(rows * from.columns));
  move_heads(copy_of_heads(name, from, to), tensor.dtype, bytes, DType::kF64,
             std::as_writable_bytes(std::span(values)));
  return values;
}

DenseLinear read_linear(const Checkpoint& checkpoint, const LinearTensors& names,
                        const Rows& features, std::int64_t head_dim) {
  DenseLinear linear;
  linear.outputs = static_cast<std::int64_t>(features.size()) * head_dim;
  linear.inputs = checkpoint.at(names.weight).shape.at(names.input_major ? 0 : 1);
  linear.weight = read_features(checkpoint, names.weight, names.input_major, features, head_dim);
  if (!names.bias.empty()) {
    linear.bias = read_features(checkpoint, names.bias, false, features, head_dim);
  }
  return linear;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

bool all_finite(const DenseLinear& linear) {
  return all_finite(linear.weight) && all_finite(linear.bias);
}

}  // namespace

const DenseLinear& AttentionHeads::part(AttentionPart part) const {
  switch (part) {
    case AttentionPart::kQuery: return q;
    case AttentionPart::kKey: return k;
    case AttentionPart::kValue: return v;
    case AttentionPart::kOutput: break;
  }
  return o;
}

const std::vector<double>& AttentionHeads::values(const PooledTensor& tensor) const {
  return tensor.bias ? part(tensor.part).bias : part(tensor.part).weight;
}

AttentionHeads read_attention_heads(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                    const Checkpoint& checkpoint) {
  const AttentionLayout& names = spec.attention(role, layer);
  AttentionHeads heads;
  heads.query_heads = spec.query_heads;
  heads.kv_heads = spec.kv_heads_of(role)[layer];
  heads.head_dim = spec.head_dim;
  const HeadFeatures features =
      head_features(names.packing, heads.query_heads, heads.kv_heads, heads.head_dim);
  heads.q = read_linear(checkpoint, names.q, features.q, heads.head_dim);
  heads.k = read_linear(checkpoint, names.k, features.k, heads.head_dim);
  heads.v = read_linear(checkpoint, names.v, features.v, heads.head_dim);
  const Shape& output = checkpoint.at(names.o.weight).shape;
  heads.o = read_linear(checkpoint, names.o, {0}, output.at(names.o.input_major ? 1 : 0));
  return heads;
}

AttentionHeads in_order(const AttentionHeads& heads, const std::vector<std::int64_t>& order) {
  const std::int64_t d = heads.head_dim, readers = heads.query_heads / heads.kv_heads;
  AttentionHeads result = heads;
  const auto move = [](const std::vector<double>& from, std::int64_t from_row,
                       std::vector<double>& to, std::int64_t to_row, std::int64_t rows,
                       std::int64_t width) {
    if (!from.empty()) {
      std::copy_n(from.begin() + from_row * width, rows * width, to.begin() + to_row * width);
    }
  };
  for (std::int64_t p = 0; p < heads.kv_heads; ++p) {
    const std::int64_t head = order[static_cast<std::size_t>(p)];
    move(heads.k.weight, head * d, result.k.weight, p * d, d, heads.k.inputs);
    move(heads.k.bias, head * d, result.k.bias, p * d, d, 1);
    move(heads.v.weight, head * d, result.v.weight, p * d, d, heads.v.inputs);
    move(heads.v.bias, head * d, result.v.bias, p * d, d, 1);
    const std::int64_t from = head * readers * d, to = p * readers * d, size = readers * d;
    move(heads.q.weight, from, result.q.weight, to, size, heads.q.inputs);
    move(heads.q.bias, from, result.q.bias, to, size, 1);
    for (std::int64_t row = 0; row < heads.o.outputs; ++row) {
      const std::int64_t begin = row * heads.o.inputs;
      move(heads.o.weight, begin + from, result.o.weight, begin + to, size, 1);
    }
  }
  return result;
}

bool all_finite(const AttentionHeads& heads) {
  return all_finite(heads.q) && all_finite(heads.k) && all_finite(heads.v) && all_finite(heads.o);
}

std::string nonfinite_tensor(const AttentionHeads& heads, const AttentionLayout& names) {
  for (const auto& [linear, tensors] :
       {std::pair(&heads.q, &names.q), std::pair(&heads.k, &names.k), std::pair(&heads.v, &names.v),
        std::pair(&heads.o, &names.o)}) {
    if (!all_finite(*linear)) {
      return all_finite(linear->weight) ? tensors->bias : tensors->weight;
    }
  }
  return "";
}

}  // namespace regroup
