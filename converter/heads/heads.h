// A view of a stored projection as heads [H, d, D].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Offsets and strides of heads in one stored tensor, in elements: the weight of feature r of head
/// h for input c is element first[h] + r·row_stride + c·column_stride. A whole tensor is one head
/// of all its rows.
struct HeadBlocks {
  std::vector<std::int64_t> first;
  std::int64_t rows = 0;     ///< d
  std::int64_t columns = 1;  ///< D, or 1 in a bias
  std::int64_t row_stride = 1;
  std::int64_t column_stride = 1;

  std::int64_t heads() const { return static_cast<std::int64_t>(first.size()); }
  /// Whether a head's elements are contiguous, row-major.
  bool dense() const { return column_stride == 1 && row_stride == columns; }
};

/// Blocks of heads that start at the given output features of a tensor of that shape: a weight
/// [out, in], or [in, out] if `input_major`, or a bias [out].
HeadBlocks head_blocks(const Shape& shape, bool input_major,
                       std::span<const std::int64_t> first_features, std::int64_t head_dim);

/// For each new head the old ones it is made from: `before` heads in `groups` blocks of neighbours,
/// each block stored `after` / `groups` times. Of two consecutive counts one divides the other.
std::vector<std::vector<std::int64_t>> heads_of_groups(std::int64_t before, std::int64_t groups,
                                                       std::int64_t after);

}  // namespace regroup
