#include "converter/heads/heads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "formats/base/error.h"

namespace regroup {

std::vector<std::int64_t> evenly_spaced(std::int64_t count, std::int64_t step) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(i) * step;
  }
  return numbers;
}

bool is_permutation_of(std::int64_t count, std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  return numbers == evenly_spaced(count);
}

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

void HeadOrder::set(AttentionRole role, std::size_t layer, std::vector<std::int64_t> kv_heads) {
  if (kv_heads == evenly_spaced(std::ssize(kv_heads))) {
    orders_.erase({role, layer});
  } else {
    orders_[{role, layer}] = std::move(kv_heads);
  }
}

std::vector<std::int64_t> HeadOrder::heads(AttentionRole role, std::size_t layer,
                                           std::int64_t count) const {
  std::vector<std::int64_t> heads = evenly_spaced(count);
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
    const auto [role, layer] = place;
    const std::vector<std::int64_t>& layers = source.kv_heads_of(role);
    const std::int64_t count = layer < layers.size() ? layers[layer] : 0;
    if (!is_permutation_of(count, heads)) {
      throw_usage("head order: {} layer {} needs a permutation of its {} kv heads", name_of(role),
                  layer, count);
    }
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
  return std::ranges::all_of(together,
                             [&](std::size_t other) { return kv_heads[other] == kv_heads[layer]; });
}

void move_slopes(const HeadOrder& order, const ModelSpec& source, ModelSpec& grouped) {
  if (order.empty() || source.positions != PositionKind::kAlibi ||
      grouped.positions != PositionKind::kAlibi) {
    return;
  }
  const auto moved = [&](AttentionRole role) {
    std::vector<std::vector<double>> slopes = alibi_slopes_per_layer(source, role);
    for (std::size_t layer = 0; layer < slopes.size(); ++layer) {
      slopes[layer] = taken(slopes[layer], order.heads(role, layer, source.query_heads));
    }
    return slopes;
  };
  grouped.alibi.slopes = moved(AttentionRole::kSelf);
  if (source.has_encoder()) {
    grouped.alibi.encoder_slopes = moved(AttentionRole::kEncoder);
  }
}

namespace {

// Reads the heads that begin at these features of a tensor, in this order: [heads·d, D], or
// [heads·d] for a bias.
std::vector<double> read_features(const Checkpoint& checkpoint, const std::string& name,
                                  bool input_major, std::span<const std::int64_t> features,
                                  std::int64_t head_dim) {
  const TensorInfo& tensor = checkpoint.at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  const HeadBlocks from = head_blocks(tensor.shape, input_major, features, head_dim);
  const std::int64_t rows = std::ssize(features) * head_dim;
  const Shape shape = tensor.shape.size() == 2 ? Shape{rows, from.columns} : Shape{rows};
  const HeadBlocks to =
      head_blocks(shape, false, evenly_spaced(std::ssize(features), head_dim), head_dim);
  std::vector<double> values(static_cast<std::size_t>(rows * from.columns));
  move_heads(copy_of_heads(name, from, to), tensor.dtype, bytes, DType::kF64,
             std::as_writable_bytes(std::span(values)));
  return values;
}

DenseLinear read_linear(const Checkpoint& checkpoint, const LinearTensors& names,
                        const std::vector<std::int64_t>& features, std::int64_t head_dim) {
  DenseLinear linear;
  linear.outputs = std::ssize(features) * head_dim;
  linear.inputs = checkpoint.at(names.weight).shape.at(names.input_major ? 0 : 1);
  linear.weight = read_features(checkpoint, names.weight, names.input_major, features, head_dim);
  if (!names.bias.empty()) {
    linear.bias = read_features(checkpoint, names.bias, false, features, head_dim);
  }
  return linear;
}

// The norm of all heads; empty if there is none.
DenseLinear read_norm(const Checkpoint& checkpoint, const std::vector<NormTensors>& norms) {
  if (norms.empty()) {
    return {};
  }
  DenseLinear norm{0, 1, stored_numbers(checkpoint, norms.front().weight), {}};
  norm.outputs = std::ssize(norm.weight);
  if (!norms.front().bias.empty()) {
    norm.bias = stored_numbers(checkpoint, norms.front().bias);
  }
  return norm;
}

}  // namespace

std::vector<double> stored_numbers(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo& tensor = checkpoint.at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode_numbers(tensor.dtype, bytes, values);
  return values;
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
  if (spec.qk_norm != QkNorm::kPerHead) {
    heads.q_norm = read_norm(checkpoint, names.q_norms);
    heads.k_norm = read_norm(checkpoint, names.k_norms);
    heads.norm_offset = spec.norm_weight_offset;
  }
  return heads;
}

std::vector<double> blocks_in_order(const std::vector<double>& rows,
                                    std::span<const std::int64_t> order, std::int64_t size) {
  const std::int64_t width = std::ssize(order) * size;
  std::vector<double> result;
  result.reserve(rows.size());
  for (std::int64_t row = 0; row + width <= std::ssize(rows) && width > 0; row += width) {
    for (const std::int64_t block : order) {
      const auto begin = rows.begin() + row + block * size;
      result.insert(result.end(), begin, begin + size);
    }
  }
  return result;
}

AttentionHeads in_order(AttentionHeads heads, const std::vector<std::int64_t>& order) {
  const auto move_outputs = [&](DenseLinear& linear, std::int64_t features) {
    linear.weight = blocks_in_order(linear.weight, order, features * linear.inputs);
    linear.bias = blocks_in_order(linear.bias, order, features);
  };
  const std::int64_t readers = heads.query_heads / heads.kv_heads * heads.head_dim;
  move_outputs(heads.q, readers);
  move_outputs(heads.k, heads.head_dim);
  move_outputs(heads.v, heads.head_dim);
  heads.o.weight = blocks_in_order(heads.o.weight, order, readers);
  for (const auto& [norm, features] :
       {std::pair(&heads.q_norm, readers), std::pair(&heads.k_norm, heads.head_dim)}) {
    if (norm->outputs > heads.head_dim) {  // otherwise all heads share it
      move_outputs(*norm, features);
    }
  }
  return heads;
}

bool all_finite(std::span<const double> numbers) {
  return std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); });
}

std::string nonfinite_tensor(const AttentionHeads& heads, const AttentionLayout& names) {
  for (const auto& [linear, tensors] :
       {std::pair(&heads.q, &names.q), std::pair(&heads.k, &names.k), std::pair(&heads.v, &names.v),
        std::pair(&heads.o, &names.o)}) {
    if (!all_finite(linear->weight)) {
      return tensors->weight;
    }
    if (!all_finite(linear->bias)) {
      return tensors->bias;
    }
  }
  if (!all_finite(heads.q_norm.weight)) {
    return names.q_norms.front().weight;
  }
  return all_finite(heads.k_norm.weight) ? "" : names.k_norms.front().weight;
}

namespace {

constexpr std::int64_t kChunk = 2048;  // elements; sums and operands of as many fit in the cache

// A run of contiguous elements of the target, and their sources. Both are counted from the first
// element of the head.
struct Line {
  std::int64_t from = 0;
  std::int64_t step = 1;
  std::int64_t to = 0;
  std::int64_t length = 0;
  std::span<const std::int64_t> order = {};  // element i comes from place order[i]

  bool adjacent() const { return step == 1 && order.empty(); }
  std::int64_t source_of(std::int64_t i) const {
    return from + (order.empty() ? i : order[static_cast<std::size_t>(i)]) * step;
  }
};

std::vector<Line> lines_of(const HeadMove& move) {
  const HeadBlocks& from = move.from;
  const HeadBlocks& to = move.to;
  if (move.row_order.empty() && from.dense() && to.dense()) {
    return {{0, 1, 0, to.rows * to.columns, {}}};
  }
  std::vector<Line> lines;
  if (to.row_stride == 1) {  // features lie side by side
    for (std::int64_t c = 0; c < to.columns; ++c) {
      lines.push_back(
          {c * from.column_stride, from.row_stride, c * to.column_stride, to.rows, move.row_order});
    }
    return lines;
  }
  for (std::int64_t r = 0; r < to.rows; ++r) {
    const std::int64_t row =
        move.row_order.empty() ? r : move.row_order[static_cast<std::size_t>(r)];
    lines.push_back({row * from.row_stride, from.column_stride, r * to.row_stride, to.columns, {}});
  }
  return lines;
}

// The elements of one tensor, by index.
template <typename Byte>
struct Elements {
  DType type;
  std::span<Byte> bytes;

  std::span<Byte> at(std::int64_t first, std::int64_t count) const {
    return bytes.subspan(bytes_of_elements(type, static_cast<std::size_t>(first)),
                         bytes_of_elements(type, static_cast<std::size_t>(count)));
  }
};

using SourceElements = Elements<const std::byte>;
using TargetElements = Elements<std::byte>;

void copy_line(const Line& line, std::int64_t first_from, std::int64_t first_to,
               const SourceElements& source, const TargetElements& target) {
  if (line.adjacent()) {
    const auto run = source.at(first_from + line.from, line.length);
    std::memcpy(target.at(first_to + line.to, line.length).data(), run.data(), run.size());
    return;
  }
  for (std::int64_t i = 0; i < line.length; ++i) {
    const auto element = source.at(first_from + line.source_of(i), 1);
    std::memcpy(target.at(first_to + line.to + i, 1).data(), element.data(), element.size());
  }
}

void decode_part(const Line& line, std::int64_t first, std::int64_t begin,
                 const SourceElements& source, std::span<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  if (line.adjacent()) {
    decode_numbers(source.type, source.at(first + line.from + begin, count), values);
    return;
  }
  std::array<std::byte, kChunk * sizeof(double)> gathered;
  std::byte* end = gathered.data();
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const auto element = source.at(first + line.source_of(i), 1);
    end = std::copy(element.begin(), element.end(), end);
  }
  decode_numbers(source.type, std::span(gathered.data(), end), values);
}

bool average_line(const Line& line, std::span<const std::int64_t> heads, const HeadBlocks& from,
                  std::int64_t first_to, const SourceElements& source,
                  const TargetElements& target) {
  std::array<double, kChunk> sums;
  std::array<double, kChunk> values;
  const double largest = largest_number(target.type);
  bool finite = true;
  for (std::int64_t begin = 0; begin < line.length; begin += kChunk) {
    const auto count = static_cast<std::size_t>(std::min(kChunk, line.length - begin));
    const auto decode_head = [&](std::int64_t head, std::span<double> out) {
      decode_part(line, from.first[static_cast<std::size_t>(head)], begin, source, out);
    };
    if (heads.size() == 1) {
      decode_head(heads.front(), std::span(sums).first(count));  // keeps the sign of zero
    } else {
      std::fill_n(sums.begin(), count, 0.0);
      for (const std::int64_t head : heads) {
        decode_head(head, std::span(values).first(count));
        for (std::size_t i = 0; i < count; ++i) {
          sums[i] += values[i];
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] /= static_cast<double>(heads.size());
      finite = finite && std::abs(sums[i]) <= largest;
    }
    if (!finite && is_block_type(target.type)) {
      return false;  // no block can hold NaN or infinities
    }
    encode_numbers(target.type, std::span(sums).first(count),
                   target.at(first_to + line.to + begin, static_cast<std::int64_t>(count)));
  }
  return finite;
}

}  // namespace

bool HeadMove::pools() const {
  return std::ranges::any_of(mean_of, [](const auto& heads) { return heads.size() > 1; });
}

HeadMove copy_of_heads(std::string source, HeadBlocks from, HeadBlocks to) {
  HeadMove move{std::move(source), std::move(from), std::move(to), {}, {}, std::nullopt};
  move.mean_of = heads_of_groups(move.to.heads(), move.to.heads(), move.to.heads());
  return move;
}

bool move_heads(const HeadMove& move, DType from_type, std::span<const std::byte> source,
                DType to_type, std::span<std::byte> target) {
  const SourceElements elements{from_type, source};
  const TargetElements places{to_type, target};
  const std::vector<Line> lines = lines_of(move);
  bool finite = true;
  for (std::size_t h = 0; h < move.mean_of.size(); ++h) {
    const std::vector<std::int64_t>& heads = move.mean_of[h];
    const bool keeps_bits = heads.size() == 1 && from_type == to_type;
    for (const Line& line : lines) {
      if (keeps_bits) {
        copy_line(line, move.from.first[static_cast<std::size_t>(heads.front())], move.to.first[h],
                  elements, places);
      } else {
        finite = average_line(line, heads, move.from, move.to.first[h], elements, places) && finite;
      }
    }
  }
  return finite;
}

}  // namespace regroup
