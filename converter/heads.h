// The projection view: heads [H, d, D], wherever a stored tensor keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/dtype.h"

namespace regroup {

/// Where heads lie inside one stored tensor, in elements: head h consists of `runs` runs of `run`
/// elements each, `stride` apart, the first at `first[h]`. A head stored as d rows of D is one run
/// of d·D; stored as d columns (Conv1D) it is D runs of d; in a bias it is one run of d.
struct HeadBlocks {
  std::vector<std::int64_t> first;
  std::int64_t runs = 1;
  std::int64_t run = 0;
  std::int64_t stride = 0;

  std::int64_t heads() const { return static_cast<std::int64_t>(first.size()); }
};

/// Blocks of heads that begin at the given output features of a tensor of that shape: a weight
/// [out, in] or, where `input_major`, [in, out]; or a bias [out].
HeadBlocks head_blocks(const Shape& shape, bool input_major,
                       std::span<const std::int64_t> first_features, std::int64_t head_dim);

/// Copies every head of `source` to the same head of `target`, byte for byte.
void copy_heads(DType dtype, std::span<const std::byte> source, const HeadBlocks& from,
                std::span<std::byte> target, const HeadBlocks& to);

}  // namespace regroup
