#include "converter/heads/move_heads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "formats/tensors/dtype.h"

namespace regroup {
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
class Elements {
 public:
  Elements(DType type, std::span<Byte> bytes) : type_(type), bytes_(bytes) {}

  DType type() const { return type_; }
  std::span<Byte> at(std::int64_t first, std::int64_t count) const {
    return bytes_.subspan(size_of(first), size_of(count));
  }

 private:
  std::size_t size_of(std::int64_t elements) const {
    return bytes_of_elements(type_, static_cast<std::size_t>(elements));
  }

  DType type_;
  std::span<Byte> bytes_;
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
    decode_numbers(source.type(), source.at(first + line.from + begin, count), values);
    return;
  }
  std::array<std::byte, kChunk * sizeof(double)> gathered;
  std::byte* end = gathered.data();
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const auto element = source.at(first + line.source_of(i), 1);
    end = std::copy(element.begin(), element.end(), end);
  }
  decode_numbers(source.type(), std::span(gathered.data(), end), values);
}

bool average_line(const Line& line, std::span<const std::int64_t> heads, const HeadBlocks& from,
                  std::int64_t first_to, const SourceElements& source,
                  const TargetElements& target) {
  std::array<double, kChunk> sums;
  std::array<double, kChunk> values;
  const double largest = largest_number(target.type());
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
    if (!finite && is_block_type(target.type())) {
      return false;  // no block can hold NaN or infinities
    }
    encode_numbers(target.type(), std::span(sums).first(count),
                   target.at(first_to + line.to + begin, static_cast<std::int64_t>(count)));
  }
  return finite;
}

}  // namespace

bool HeadMove::pools() const {
  return std::any_of(mean_of.begin(), mean_of.end(),
                     [](const auto& heads) { return heads.size() > 1; });
}

HeadMove copy_of_heads(std::string source, HeadBlocks from, HeadBlocks to) {
  HeadMove move{std::move(source), std::move(from), std::move(to), {}, {}, std::nullopt};
  move.mean_of = heads_of_groups(move.to.heads(), move.to.heads(), move.to.heads());
  return move;
}

bool move_heads(const HeadMove& move, DType from_type, std::span<const std::byte> source,
                DType to_type, std::span<std::byte> target) {
  const SourceElements elements(from_type, source);
  const TargetElements places(to_type, target);
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
