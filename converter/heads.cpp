#include "converter/heads.h"

#include <cstring>

namespace regroup {

HeadBlocks head_blocks(const Shape& shape, bool input_major,
                       std::span<const std::int64_t> first_features, std::int64_t head_dim) {
  HeadBlocks blocks;
  blocks.first.assign(first_features.begin(), first_features.end());
  const bool columns = shape.size() == 2 && input_major;
  const std::int64_t in = shape.size() == 1 ? 1 : columns ? shape[0] : shape[1];
  if (columns) {
    blocks.runs = in;
    blocks.run = head_dim;
    blocks.stride = shape[1];
    return blocks;
  }
  blocks.run = blocks.stride = head_dim * in;
  for (std::int64_t& first : blocks.first) {
    first *= in;
  }
  return blocks;
}

void copy_heads(DType dtype, std::span<const std::byte> source, const HeadBlocks& from,
                std::span<std::byte> target, const HeadBlocks& to) {
  const auto size = static_cast<std::int64_t>(bits_of(dtype) / 8);
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements * size);
  };
  for (std::size_t h = 0; h < from.first.size(); ++h) {
    for (std::int64_t r = 0; r < from.runs; ++r) {
      const auto run = source.subspan(bytes(from.first[h] + r * from.stride), bytes(from.run));
      const auto place = target.subspan(bytes(to.first[h] + r * to.stride), bytes(to.run));
      std::memcpy(place.data(), run.data(), run.size());
    }
  }
}

}  // namespace regroup
