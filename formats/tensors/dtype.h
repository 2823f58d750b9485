// Element types, their sizes, and their numbers as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace regroup {

/// Element types of safetensors, and ggml's quantised block types.
enum class DType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
  // ggml's block types, only in GGUF files: each row is split into blocks that share scales.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq2Xxs,
  kIq2Xs,
  kIq3Xxs,
  kIq1S,
  kIq4Nl,
  kIq3S,
  kIq2S,
  kIq4Xs,
  kIq1M,
  kTq1_0,
  kTq2_0,
  kMxfp4,
  kNvfp4,
  kQ1_0,
  kQ2_0,
};

/// Whether elements are stored in blocks. Each row must then be a whole number of blocks.
bool is_block_type(DType dtype);

/// The smallest number of elements that fills whole bytes, and the size of those in bytes: 1 and 2
/// for BF16, 32 and 34 for Q8_0.
std::uint64_t block_elements(DType dtype);
std::uint64_t block_bytes(DType dtype);

/// Bits of one element (4, 6, 8, 16, 32 or 64). Throws kUsage for block types, which have no whole
/// number of bits per element.
std::uint64_t bits_of(DType dtype);

/// The name in safetensors, such as "BF16", or in ggml, such as "Q4_K".
std::string_view name_of(DType dtype);

/// The dtype of a safetensors name; none for unknown names, which include those of block types.
std::optional<DType> dtype_from_name(std::string_view name);

/// Whether this library can compute with the type: F16, BF16, F32, F64.
bool is_pooling_dtype(DType dtype);

/// Reads `values.size()` elements of `dtype` (F16, BF16, F32, F64; little-endian) as doubles,
/// exactly. Throws kUsage for other dtypes or if `bytes` is not values.size() elements long.
void decode_to_double(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

/// Writes doubles as `dtype`, rounding once to nearest, ties to even. There is no intermediate
/// float: double rounding would be off by one unit in rare cases.
void encode_from_double(DType dtype, std::span<const double> values, std::span<std::byte> bytes);

/// Whether decode_numbers() reads the type: F16, BF16, F32, F64, Q4_0 to Q8_0, Q2_K to Q6_K and
/// MXFP4. Of ggml's other block types (IQ, TQ, NVFP4, Q1_0, Q2_0) only names and sizes are known.
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

/// Writes numbers, each rounded once. Throws kUsage for a type that cannot be encoded or a wrong
/// length, kBadInput for values that are not finite or too large for Q8_0.
void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes);

// Reads elements of almost any stored type as numbers, for inspection only. Covers integers and the
// 8- and 4-bit floats of quantised checkpoints in addition to the types used in computation.

/// True for every type except F6, complex numbers and block types that cannot be dequantised.
bool can_read_values(DType dtype);

/// Reads values.size() elements, exactly except for integers beyond 2^53. Throws kUsage for a type
/// that cannot be read or a wrong length.
void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values);

}  // namespace regroup
