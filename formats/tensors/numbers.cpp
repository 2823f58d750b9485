// Numbers in any stored form: floats of all widths, integers, and ggml's block types, which are
// dequantised, and quantised to Q8_0.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/base/error.h"
#include "formats/tensors/dtype.h"

namespace regroup {

namespace {

// Rounds a double to a float such that a second rounding to a 16-bit type is exact: the last bit
// is made odd whenever anything was cut off ("round to odd", Boldo and Melquiond 2008).
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) {
    return nearest;
  }
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away_from_zero = (value < 0 ? -back : back) > (value < 0 ? -value : value);
  bits -= away_from_zero ? 1U : 0U;  // now truncated towards zero
  return std::bit_cast<float>(bits | 1U);
}

std::uint16_t to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(round_to_odd(value));
  if (value != value) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

double from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

std::uint16_t to_f16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(round_to_odd(value));
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<std::uint16_t>(sign | 0x7e00U);
  }
  if (magnitude >= 0x47800000U) {  // 2^16 and above, infinity included
    return static_cast<std::uint16_t>(sign | 0x7c00U);
  }
  std::uint32_t rounded = 0;
  if (magnitude >= 0x38800000U) {  // normal in half precision: 2^-14 and above
    const std::uint32_t rebiased = magnitude - 0x38000000U;
    rounded = (rebiased + 0xfffU + ((rebiased >> 13) & 1U)) >> 13;
  } else if (magnitude >= 0x33000000U) {  // subnormal, or rounds to the smallest: 2^-25 and above
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t shift = 126U - exponent;  // 14 at 2^-15, 24 at 2^-25
    const std::uint32_t half = 1U << (shift - 1);
    rounded = (mantissa + half - 1U + ((mantissa >> shift) & 1U)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

double from_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0) {
    const double magnitude = static_cast<double>(mantissa) * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0x7f800000U : (exponent + 112U) << 23;
  return std::bit_cast<float>(sign | wide | (mantissa << 13));
}

// A float of few bits: sign, exponent, mantissa; with subnormals, as in IEEE 754.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;

  double value(unsigned bits) const {
    const unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
    const int exponent = static_cast<int>(bits >> mantissa_bits & ((1U << exponent_bits) - 1));
    const bool negative = (bits >> (mantissa_bits + exponent_bits) & 1U) != 0;
    const double fraction = mantissa + (exponent > 0 ? 1U << mantissa_bits : 0U);
    const double magnitude = std::ldexp(fraction, std::max(exponent, 1) - bias - mantissa_bits);
    return negative ? -magnitude : magnitude;
  }
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// https://arxiv.org/abs/2209.05433 (E4M3 has no infinities, E5M2 has IEEE's).
double from_e4m3(std::uint8_t bits) {
  return (bits & 0x7fU) == 0x7fU ? kNan : SmallFloat{4, 3, 7}.value(bits);
}

double from_e5m2(std::uint8_t bits) {
  if ((bits & 0x7cU) == 0x7cU) {
    const double infinity = std::numeric_limits<double>::infinity();
    return (bits & 3U) != 0 ? kNan : (bits & 0x80U) != 0 ? -infinity : infinity;
  }
  return SmallFloat{5, 2, 15}.value(bits);
}

// The "FNUZ" variants: the bias is larger by one, and the code of -0 is the only NaN.
double from_e4m3_fnuz(std::uint8_t bits) {
  return bits == 0x80U ? kNan : SmallFloat{4, 3, 8}.value(bits);
}

double from_e5m2_fnuz(std::uint8_t bits) {
  return bits == 0x80U ? kNan : SmallFloat{5, 2, 16}.value(bits);
}

// A power of two: a scale of OCP's microscaling formats.
double from_e8m0(std::uint8_t bits) { return bits == 0xffU ? kNan : std::ldexp(1.0, bits - 127); }

template <typename Stored>
double widened(Stored number) {
  return static_cast<double>(number);
}

float narrowed(double number) { return static_cast<float>(number); }

// Reads the elements of which `kValue` converts each.
template <typename Stored, auto kValue = widened<Stored>>
void read_each(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = kValue(stored);
  }
}

template <auto kStored>
void write_each(std::span<const double> values, std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto stored = kStored(values[i]);
    std::memcpy(bytes.data() + i * sizeof(stored), &stored, sizeof(stored));
  }
}

// E2M1: a byte holds two elements, the first in its low half.
void read_f4(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = std::to_integer<unsigned>(bytes[i / 2]);
    values[i] = SmallFloat{2, 1, 1}.value(i % 2 == 0 ? pair & 0xfU : pair >> 4);
  }
}

using NumberReader = void (*)(std::span<const std::byte> bytes, std::span<double> values);

// Null for block types, and for those that nothing reads.
NumberReader reader_of_numbers(DType dtype) {
  switch (dtype) {
    case DType::kF16: return read_each<std::uint16_t, from_f16>;
    case DType::kBF16: return read_each<std::uint16_t, from_bf16>;
    case DType::kF32: return read_each<float>;
    case DType::kF64: return read_each<double>;
    case DType::kBool:
    case DType::kU8: return read_each<std::uint8_t>;
    case DType::kI8: return read_each<std::int8_t>;
    case DType::kI16: return read_each<std::int16_t>;
    case DType::kU16: return read_each<std::uint16_t>;
    case DType::kI32: return read_each<std::int32_t>;
    case DType::kU32: return read_each<std::uint32_t>;
    case DType::kI64: return read_each<std::int64_t>;
    case DType::kU64: return read_each<std::uint64_t>;
    case DType::kF4: return read_f4;
    case DType::kF8E4M3: return read_each<std::uint8_t, from_e4m3>;
    case DType::kF8E5M2: return read_each<std::uint8_t, from_e5m2>;
    case DType::kF8E4M3Fnuz: return read_each<std::uint8_t, from_e4m3_fnuz>;
    case DType::kF8E5M2Fnuz: return read_each<std::uint8_t, from_e5m2_fnuz>;
    case DType::kF8E8M0: return read_each<std::uint8_t, from_e8m0>;
    default: return nullptr;
  }
}

// ggml's block types: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Each value
// equals the float that ggml's reference code computes: products of scales and quants are exact in
// float, and adding a block's minimum rounds once.

// The bytes of one block.
class Block {
 public:
  explicit Block(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int u8(std::size_t at) const { return std::to_integer<int>(bytes_[at]); }
  int i8(std::size_t at) const { return static_cast<std::int8_t>(u8(at)); }
  int low(std::size_t at) const { return u8(at) & 0xf; }
  int high(std::size_t at) const { return u8(at) >> 4; }
  int two_bits(std::size_t at, std::size_t shift) const { return (u8(at) >> shift) & 3; }
  int bit(std::size_t at, std::size_t shift) const { return (u8(at) >> shift) & 1; }

  double half(std::size_t at) const {
    return from_f16(static_cast<std::uint16_t>(u8(at) | u8(at + 1) << 8));
  }

 private:
  std::span<const std::byte> bytes_;
};

// In blocks of 32, the low halves of 16 bytes hold the first 16 quants, the high halves the others.
int nibble(const Block& block, std::size_t quants, std::size_t i) {
  return i < 16 ? block.low(quants + i) : block.high(quants + i - 16);
}

// In the K types a block has 256 elements. 32 bytes hold 128 quants of two bits: each of the four
// shifts selects 32 of them.
int quarter(const Block& block, std::size_t quants, std::size_t i) {
  return block.two_bits(quants + i / 128 * 32 + i % 32, i % 128 / 32 * 2);
}

// Rounds as ggml does. scale · quant is exact in a float, but a sum with it is not.
double rounded(double value) { return static_cast<float>(value); }

// As in nibble(), where 4 more bytes hold the fifth bit of each quant.
int five_bits(const Block& block, std::size_t fifths, std::size_t i) {
  return nibble(block, fifths + 4, i) | block.bit(fifths + i / 8, i % 8) << 4;
}

// A scale, and the minimum for types that have one: of a block, or of a group of its elements.
struct BlockScale {
  double scale = 0.0;
  double minimum = 0.0;
};

double q4_0(const Block& block, BlockScale by, std::size_t i) {
  return by.scale * (nibble(block, 2, i) - 8);
}

double q4_1(const Block& block, BlockScale by, std::size_t i) {
  return rounded(by.scale * nibble(block, 4, i) + by.minimum);
}

double q5_0(const Block& block, BlockScale by, std::size_t i) {
  return by.scale * (five_bits(block, 2, i) - 16);
}

double q5_1(const Block& block, BlockScale by, std::size_t i) {
  return rounded(by.scale * five_bits(block, 4, i) + by.minimum);
}

double q8_0(const Block& block, BlockScale by, std::size_t i) { return by.scale * block.i8(2 + i); }

double q2_k(const Block& block, BlockScale by, std::size_t i) {
  return rounded(by.scale * block.low(i / 16) * quarter(block, 16, i) -
                 by.minimum * block.high(i / 16));
}

// 8 bytes hold the low 4 bits of 16 scales of 6 bits, the 4 bytes after them the high 2 bits.
int q3_k_scale(const Block& block, std::size_t group) {
  const int low = group < 8 ? block.low(96 + group) : block.high(96 + group - 8);
  return (low | block.two_bits(104 + group % 4, group / 4 * 2) << 4) - 32;
}

double q3_k(const Block& block, BlockScale by, std::size_t i) {
  const int third_bit = block.bit(i % 32, i / 32);  // if it is 0, 4 is subtracted
  return by.scale * q3_k_scale(block, i / 16) * (quarter(block, 32, i) - 4 * (1 - third_bit));
}

// The 12 bytes at offset 4 hold 8 scales and 8 minima of 6 bits. Those of the first 4 groups take
// the low 6 bits of a byte. The 2 bits left in these bytes are the top bits of the other groups.
BlockScale packed_scale(const Block& block, std::size_t group) {
  constexpr std::size_t kAt = 4;
  BlockScale packed;
  if (group < 4) {
    packed.scale = block.u8(kAt + group) & 63;
    packed.minimum = block.u8(kAt + group + 4) & 63;
  } else {
    packed.scale = block.low(kAt + group + 4) | block.two_bits(kAt + group - 4, 6) << 4;
    packed.minimum = block.high(kAt + group + 4) | block.two_bits(kAt + group, 6) << 4;
  }
  return packed;
}

// 32 bytes hold 64 elements: the low halves the first 32, the high halves the next 32.
int paired_nibble(const Block& block, std::size_t quants, std::size_t i) {
  const std::size_t at = quants + i / 64 * 32 + i % 32;
  return i % 64 < 32 ? block.low(at) : block.high(at);
}

double q4_k(const Block& block, BlockScale by, std::size_t i) {
  const BlockScale group = packed_scale(block, i / 32);
  return rounded(by.scale * group.scale * paired_nibble(block, 16, i) - by.minimum * group.minimum);
}

double q5_k(const Block& block, BlockScale by, std::size_t i) {
  const BlockScale group = packed_scale(block, i / 32);
  const int quant = paired_nibble(block, 48, i) | block.bit(16 + i % 32, i / 32) << 4;
  return rounded(by.scale * group.scale * quant - by.minimum * group.minimum);
}

double q6_k(const Block& block, BlockScale by, std::size_t i) {
  const std::size_t at = i / 128 * 64 + i % 64;  // 64 bytes hold 128 elements
  const int low = i % 128 < 64 ? block.low(at) : block.high(at);
  const int quant = low | quarter(block, 128, i) << 4;
  return by.scale * block.i8(192 + i / 16) * (quant - 32);
}

// Reads the elements of which `kValue` computes each. The halves are at these bytes.
template <auto kValue, std::size_t kScale, std::size_t kMinimum = kScale>
void read_elements(const Block& block, std::span<double> values) {
  const BlockScale by{block.half(kScale), block.half(kMinimum)};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = kValue(block, by, i);
  }
}

// Elements of E2M1. The scale is a power of two, and as in ggml no code of it is a NaN.
void read_mxfp4(const Block& block, std::span<double> values) {
  constexpr std::array<int, 16> kTwiceE2M1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const double scale = std::ldexp(1.0, block.u8(0) - 128);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * kTwiceE2M1[static_cast<std::size_t>(nibble(block, 1, i))];
  }
}

using BlockReader = void (*)(const Block& block, std::span<double> values);

// Null for other types.
BlockReader reader_of_blocks(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return read_elements<q4_0, 0>;
    case DType::kQ4_1: return read_elements<q4_1, 0, 2>;
    case DType::kQ5_0: return read_elements<q5_0, 0>;
    case DType::kQ5_1: return read_elements<q5_1, 0, 2>;
    case DType::kQ8_0: return read_elements<q8_0, 0>;
    case DType::kQ2K: return read_elements<q2_k, 80, 82>;
    case DType::kQ3K: return read_elements<q3_k, 108>;
    case DType::kQ4K: return read_elements<q4_k, 0, 2>;
    case DType::kQ5K: return read_elements<q5_k, 0, 2>;
    case DType::kQ6K: return read_elements<q6_k, 208>;
    case DType::kMxfp4: return read_mxfp4;
    default: return nullptr;
  }
}

// Bit for bit as ggml's reference code does from the values rounded to float.
void write_q8_0(std::span<const double> values, std::span<std::byte> block) {
  float largest = 0.0F;
  for (const double value : values) {
    largest = std::max(largest, std::fabs(static_cast<float>(value)));
    if (!std::isfinite(static_cast<float>(value))) {
      throw_bad_input("{} cannot be stored as Q8_0", value);
    }
  }
  const float scale = largest / 127.0F;
  if (scale >= 65520.0F) {  // rounds to infinity in half precision
    throw_bad_input("{} is too large to be stored as Q8_0", largest);
  }
  const std::uint16_t stored = to_f16(scale);
  std::memcpy(block.data(), &stored, sizeof(stored));
  // ggml divides by the unrounded scale, and rounds halves away from zero.
  const float exact_inverse = 1.0F / scale;
  const float inverse = std::isfinite(exact_inverse) ? exact_inverse : 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float quant = std::round(static_cast<float>(values[i]) * inverse);
    block[2 + i] = static_cast<std::byte>(static_cast<int>(quant));
  }
}

void check_length(DType dtype, std::size_t bytes, std::size_t elements) {
  if (elements % block_elements(dtype) != 0 || bytes != bytes_of_elements(dtype, elements)) {
    throw_usage("{} bytes do not hold {} elements of {}", bytes, elements, name_of(dtype));
  }
}

void check_is_computed(DType dtype) {
  if (!is_pooling_dtype(dtype)) {
    throw_usage("dtype {} cannot be computed with; allowed: F16, BF16, F32, F64", name_of(dtype));
  }
}

// Reads a type that has a reader.
void read_any(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  check_length(dtype, bytes.size(), values.size());
  if (const NumberReader read = reader_of_numbers(dtype)) {
    read(bytes, values);
    return;
  }
  const BlockReader read = reader_of_blocks(dtype);
  const std::size_t elements = block_elements(dtype);
  const std::size_t size = block_bytes(dtype);
  for (std::size_t i = 0; i < values.size() / elements; ++i) {
    read(Block(bytes.subspan(i * size, size)), values.subspan(i * elements, elements));
  }
}

}  // namespace

bool can_decode(DType dtype) {
  return is_pooling_dtype(dtype) || reader_of_blocks(dtype) != nullptr;
}

bool can_read_values(DType dtype) {
  return reader_of_numbers(dtype) != nullptr || reader_of_blocks(dtype) != nullptr;
}

void decode_to_double(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  check_is_computed(dtype);
  read_any(dtype, bytes, values);
}

void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (!is_block_type(dtype)) {
    check_is_computed(dtype);
  } else if (!can_decode(dtype)) {
    throw_usage("dtype {} cannot be dequantised", name_of(dtype));
  }
  read_any(dtype, bytes, values);
}

void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (!can_read_values(dtype)) {
    throw_usage("elements of {} cannot be read as numbers", name_of(dtype));
  }
  read_any(dtype, bytes, values);
}

void encode_from_double(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  check_is_computed(dtype);
  check_length(dtype, bytes.size(), values.size());
  switch (dtype) {
    case DType::kF16: return write_each<to_f16>(values, bytes);
    case DType::kBF16: return write_each<to_bf16>(values, bytes);
    case DType::kF32: return write_each<narrowed>(values, bytes);
    default: std::ranges::copy(std::as_bytes(values), bytes.begin());
  }
}

void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  if (dtype != DType::kQ8_0) {
    encode_from_double(dtype, values, bytes);
    return;
  }
  check_length(dtype, bytes.size(), values.size());
  const std::size_t elements = block_elements(dtype);
  const std::size_t size = block_bytes(dtype);
  for (std::size_t i = 0; i < values.size() / elements; ++i) {
    write_q8_0(values.subspan(i * elements, elements), bytes.subspan(i * size, size));
  }
}

}  // namespace regroup
