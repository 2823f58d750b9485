// Stored tensors as numbers, whichever type stores them: floats of all widths and ggml's blocks.
#pragma once

#include <cstddef>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// Whether elements of that type can be read as numbers: F16, BF16, F32, F64 and the block types
/// that can_dequantise().
bool can_decode(DType dtype);

/// Whether numbers can be written as that type: F16, BF16, F32, F64, Q8_0.
bool can_encode(DType dtype);

/// The largest magnitude that a number written as that type may have and stay finite.
double largest_number(DType dtype);

/// Bytes of `elements` elements, whole blocks of block types.
std::size_t bytes_of_elements(DType dtype, std::size_t elements);

/// Reads values.size() elements, exactly. Throws kUsage for a type one cannot decode, or a wrong
/// length.
void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

/// Writes numbers, each rounded once. Throws kUsage for a type one cannot encode.
void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes);

}  // namespace regroup
