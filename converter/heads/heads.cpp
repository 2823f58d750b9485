#include "converter/heads/heads.h"

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

}  // namespace regroup
