// Reads elements of almost any stored type as numbers, for inspection only. Covers integers and the
// 8- and 4-bit floats of quantised checkpoints in addition to the types used in computation.
#pragma once

#include <cstddef>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// True for every type except F6, complex numbers and block types that cannot be dequantised
/// (formats/dtype/block_quantisation.h).
bool can_read_values(DType dtype);

/// Reads values.size() elements, exactly except for integers beyond 2^53. Throws kUsage for a type
/// that cannot be read or a wrong length.
void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

}  // namespace regroup
