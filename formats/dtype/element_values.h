// Elements of any stored type as numbers, to be looked at: beside the types one computes with,
// whole numbers and the small floats of quantised checkpoints.
#pragma once

#include <cstddef>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// All but F6, complex numbers and the block types without a reader
/// (formats/dtype/block_quantisation.h).
bool can_read_values(DType dtype);

/// Reads values.size() elements, exactly but for whole numbers beyond 2^53. Throws kUsage for a
/// type that cannot be read, or a wrong length.
void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

}  // namespace regroup
