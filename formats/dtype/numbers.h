// Converts stored elements to and from doubles: floats of all widths and ggml's block types.
#pragma once

#include <cstddef>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// Whether decode_numbers() reads the type: F16, BF16, F32, F64 and the types for which
/// can_dequantise() is true.
bool can_decode(DType dtype);

/// Whether encode_numbers() writes the type: F16, BF16, F32, F64, Q8_0.
bool can_encode(DType dtype);

/// The largest magnitude that stays finite when written as `dtype`.
double largest_number(DType dtype);

/// Bytes of `elements` elements, which must be whole blocks for block types.
std::size_t bytes_of_elements(DType dtype, std::size_t elements);

/// Reads values.size() elements, exactly. Throws kUsage for a type that cannot be decoded or a
/// wrong length.
void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

/// Writes numbers, each rounded once. Throws kUsage for a type that cannot be encoded.
void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes);

}  // namespace regroup
