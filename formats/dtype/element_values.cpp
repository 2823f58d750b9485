#include "formats/dtype/element_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "formats/base/error.h"
#include "formats/dtype/numbers.h"

namespace regroup {
namespace {

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
double from_e4m3(unsigned bits) {
  return (bits & 0x7fU) == 0x7fU ? kNan : SmallFloat{4, 3, 7}.value(bits);
}

double from_e5m2(unsigned bits) {
  if ((bits & 0x7cU) == 0x7cU) {
    const double infinity = std::numeric_limits<double>::infinity();
    return (bits & 3U) != 0 ? kNan : (bits & 0x80U) != 0 ? -infinity : infinity;
  }
  return SmallFloat{5, 2, 15}.value(bits);
}

// The "FNUZ" variants: the bias is larger by one, and the code of -0 is the only NaN.
double from_e4m3_fnuz(unsigned bits) {
  return bits == 0x80U ? kNan : SmallFloat{4, 3, 8}.value(bits);
}

double from_e5m2_fnuz(unsigned bits) {
  return bits == 0x80U ? kNan : SmallFloat{5, 2, 16}.value(bits);
}

// A power of two: a scale of OCP's microscaling formats.
double from_e8m0(unsigned bits) {
  return bits == 0xffU ? kNan : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

using ByteValue = double (*)(unsigned);

ByteValue value_of_byte(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: return [](unsigned bits) { return static_cast<double>(bits); };
    case DType::kI8:
      return [](unsigned bits) { return static_cast<double>(static_cast<std::int8_t>(bits)); };
    case DType::kF8E4M3: return from_e4m3;
    case DType::kF8E5M2: return from_e5m2;
    case DType::kF8E4M3Fnuz: return from_e4m3_fnuz;
    case DType::kF8E5M2Fnuz: return from_e5m2_fnuz;
    case DType::kF8E8M0: return from_e8m0;
    default: return nullptr;
  }
}

template <typename T>
void read_whole_numbers(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T number{};
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(number);
  }
}

using ReadNumbers = void (*)(std::span<const std::byte>, std::span<double>);

ReadNumbers reader_of(DType dtype) {
  switch (dtype) {
    case DType::kI16: return read_whole_numbers<std::int16_t>;
    case DType::kU16: return read_whole_numbers<std::uint16_t>;
    case DType::kI32: return read_whole_numbers<std::int32_t>;
    case DType::kU32: return read_whole_numbers<std::uint32_t>;
    case DType::kI64: return read_whole_numbers<std::int64_t>;
    case DType::kU64: return read_whole_numbers<std::uint64_t>;
    default: return nullptr;
  }
}

// E2M1: a byte holds two elements, the first in its low half.
void read_f4(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = std::to_integer<unsigned>(bytes[i / 2]);
    values[i] = SmallFloat{2, 1, 1}.value(i % 2 == 0 ? pair & 0xfU : pair >> 4);
  }
}

}  // namespace

bool can_read_values(DType dtype) {
  return can_decode(dtype) || dtype == DType::kF4 || value_of_byte(dtype) != nullptr ||
         reader_of(dtype) != nullptr;
}

void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (!can_read_values(dtype)) {
    throw_usage("elements of {} cannot be read as numbers", name_of(dtype));
  }
  if (bytes.size() != bytes_of_elements(dtype, values.size())) {
    throw_usage("{} bytes do not hold {} elements of {}", bytes.size(), values.size(),
                name_of(dtype));
  }
  if (can_decode(dtype)) {
    decode_numbers(dtype, bytes, values);
  } else if (dtype == DType::kF4) {
    read_f4(bytes, values);
  } else if (const ReadNumbers read = reader_of(dtype)) {
    read(bytes, values);
  } else {
    const ByteValue value = value_of_byte(dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = value(std::to_integer<unsigned>(bytes[i]));
    }
  }
}

}  // namespace regroup
