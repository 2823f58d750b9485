// Mean pooling: each group's heads are averaged (Ainslie et al. 2023, "GQA", section 2.1).
#pragma once

#include <cstddef>
#include <span>

#include "converter/heads.h"
#include "formats/dtype.h"

namespace regroup {

/// Writes to head g of `target` the mean of source heads [g·n, (g+1)·n), n = from.heads() /
/// to.heads(). Sums and divides in double, rounds once to `dtype` (F16, BF16, F32 or F64). Returns
/// whether every result is finite.
bool pool_mean(DType dtype, std::span<const std::byte> source, const HeadBlocks& from,
               std::span<std::byte> target, const HeadBlocks& to);

}  // namespace regroup
