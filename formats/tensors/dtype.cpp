#include "formats/tensors/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "formats/base/error.h"

namespace regroup {

namespace {

struct DTypeRow {
  std::string_view name;
  std::uint64_t elements;  // of a block
  std::uint64_t bytes;     // of a block
};

// In the order of the enumeration.
constexpr std::array<DTypeRow, 47> kRows{{
    {"BOOL", 1, 1},       {"F4", 2, 1},          {"F6_E2M3", 4, 3},     {"F6_E3M2", 4, 3},
    {"U8", 1, 1},         {"I8", 1, 1},          {"F8_E5M2", 1, 1},     {"F8_E4M3", 1, 1},
    {"F8_E8M0", 1, 1},    {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1}, {"I16", 1, 2},
    {"U16", 1, 2},        {"F16", 1, 2},         {"BF16", 1, 2},        {"I32", 1, 4},
    {"U32", 1, 4},        {"F32", 1, 4},         {"C64", 1, 8},         {"F64", 1, 8},
    {"I64", 1, 8},        {"U64", 1, 8},         {"Q4_0", 32, 18},      {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},     {"Q5_1", 32, 24},      {"Q8_0", 32, 34},      {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},   {"Q4_K", 256, 144},    {"Q5_K", 256, 176},    {"Q6_K", 256, 210},
    {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},   {"IQ3_XXS", 256, 98},  {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110},   {"IQ2_S", 256, 82},    {"IQ4_XS", 256, 136},
    {"IQ1_M", 256, 56},   {"TQ1_0", 256, 54},    {"TQ2_0", 256, 66},    {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},    {"Q1_0", 128, 18},     {"Q2_0", 64, 18},
}};

constexpr auto kFirstBlockType = static_cast<std::size_t>(DType::kQ4_0);

const DTypeRow& row_of(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

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

template <typename Stored, typename Convert>
void decode_each(std::span<const std::byte> bytes, std::span<double> values, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
}

template <typename Stored, typename Convert>
void encode_each(std::span<const double> values, std::span<std::byte> bytes, Convert convert) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

void check_length(DType dtype, std::size_t bytes, std::size_t elements) {
  if (!is_pooling_dtype(dtype)) {
    throw_usage("dtype {} cannot be computed with; allowed: F16, BF16, F32, F64", name_of(dtype));
  }
  if (bytes != elements * bits_of(dtype) / 8) {
    throw_usage("{} bytes do not hold {} elements of {}", bytes, elements, name_of(dtype));
  }
}

}  // namespace

bool is_block_type(DType dtype) { return static_cast<std::size_t>(dtype) >= kFirstBlockType; }

std::uint64_t block_elements(DType dtype) { return row_of(dtype).elements; }

std::uint64_t block_bytes(DType dtype) { return row_of(dtype).bytes; }

std::uint64_t bits_of(DType dtype) {
  if (is_block_type(dtype)) {
    throw_usage("elements of {} have no size in bits: they are stored in blocks", name_of(dtype));
  }
  return row_of(dtype).bytes * 8 / row_of(dtype).elements;
}

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto end = kRows.begin() + kFirstBlockType;
  const auto* const row = std::ranges::find(kRows.begin(), end, name, &DTypeRow::name);
  return row == end ? std::nullopt : std::optional(static_cast<DType>(row - kRows.begin()));
}

bool is_pooling_dtype(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

void decode_to_double(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  check_length(dtype, bytes.size(), values.size());
  if (dtype == DType::kF16) {
    decode_each<std::uint16_t>(bytes, values, [](std::uint16_t half) { return from_f16(half); });
  } else if (dtype == DType::kBF16) {
    decode_each<std::uint16_t>(bytes, values, [](std::uint16_t half) { return from_bf16(half); });
  } else if (dtype == DType::kF32) {
    decode_each<float>(bytes, values, [](float value) -> double { return value; });
  } else {
    decode_each<double>(bytes, values, [](double value) { return value; });
  }
}

void encode_from_double(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  check_length(dtype, bytes.size(), values.size());
  if (dtype == DType::kF16) {
    encode_each<std::uint16_t>(values, bytes, [](double value) { return to_f16(value); });
  } else if (dtype == DType::kBF16) {
    encode_each<std::uint16_t>(values, bytes, [](double value) { return to_bf16(value); });
  } else if (dtype == DType::kF32) {
    encode_each<float>(values, bytes, [](double value) { return static_cast<float>(value); });
  } else {
    encode_each<double>(values, bytes, [](double value) { return value; });
  }
}

bool can_encode(DType dtype) { return is_pooling_dtype(dtype) || dtype == DType::kQ8_0; }

double largest_number(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 65519.996;  // larger numbers round to infinity
    case DType::kBF16: return 0x1.feffffp127;
    case DType::kF32: return 0x1.fffffefffffffp127;
    case DType::kQ8_0: return 8321039.5;  // 127 times the largest scale in half precision
    default: return std::numeric_limits<double>::max();
  }
}

std::size_t bytes_of_elements(DType dtype, std::size_t elements) {
  return elements / block_elements(dtype) * block_bytes(dtype);
}

}  // namespace regroup
