// Conversion of 16-bit floats, compared with a search in a table of all values.
#include "formats/tensors/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/refusal.h"

namespace regroup {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct HalfFormat {
  DType dtype;
  int mantissa_bits;
  int exponent_bits;

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  // The value of a pattern without its sign bit, by the format's definition. Infinity gets the
  // value that one more exponent would have.
  double value_of(std::uint16_t pattern) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = pattern >> mantissa_bits;
    const int mantissa = pattern & ((1 << mantissa_bits) - 1);
    return exponent == 0
               ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
               : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
};

constexpr HalfFormat kBF16{DType::kBF16, 7, 8};
constexpr HalfFormat kF16{DType::kF16, 10, 5};

// The nearest of all patterns, ties to the even one. Midpoints of neighbours are exact in double.
class Reference {
 public:
  explicit Reference(const HalfFormat& format) : infinity_(format.infinity()) {
    for (std::uint16_t pattern = 0; pattern <= infinity_; ++pattern) {
      values_.push_back(format.value_of(pattern));
    }
  }

  std::uint16_t encode(double value) const {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    if (magnitude >= values_.back()) {
      return sign | infinity_;
    }
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    const auto low = static_cast<std::uint16_t>(above - values_.begin() - 1);
    const double middle = (values_[low] + *above) / 2;
    const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
    return static_cast<std::uint16_t>(sign | (low + (up ? 1 : 0)));
  }

  double value(std::uint16_t pattern) const { return values_[pattern]; }
  double middle_above(std::uint16_t pattern) const {
    return (values_[pattern] + values_[pattern + 1U]) / 2;
  }
  std::uint16_t infinity() const { return infinity_; }

 private:
  std::uint16_t infinity_;
  std::vector<double> values_;
};

std::uint16_t encoded(DType dtype, double value) {
  std::uint16_t pattern = 0;
  encode_from_double(dtype, std::span(&value, 1), std::as_writable_bytes(std::span(&pattern, 1)));
  return pattern;
}

double decoded(DType dtype, std::uint16_t pattern) {
  double value = 0;
  decode_to_double(dtype, std::as_bytes(std::span(&pattern, 1)), std::span(&value, 1));
  return value;
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void check_every_pattern(const HalfFormat& format) {
  int wrong = 0;
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const auto magnitude = static_cast<std::uint16_t>(bits & 0x7fff);
    const double value = decoded(format.dtype, pattern);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (magnitude > format.infinity()) {
      wrong += std::isnan(value) && std::isnan(decoded(format.dtype, encoded(format.dtype, value)))
                   ? 0
                   : 1;
      continue;
    }
    const double expected =
        sign * (magnitude == format.infinity() ? kInfinity : format.value_of(magnitude));
    wrong += same_bits(value, expected) && encoded(format.dtype, value) == pattern ? 0 : 1;
  }
  CHECK(wrong == 0);
}

void check_around_every_midpoint(const HalfFormat& format) {
  const Reference reference(format);
  int wrong = 0;
  for (std::uint16_t pattern = 0; pattern < reference.infinity(); ++pattern) {
    const double middle = reference.middle_above(pattern);
    for (const double value :
         {middle, std::nextafter(middle, 0.0), std::nextafter(middle, kInfinity),
          middle * (1 - 0x1p-40), middle * (1 + 0x1p-40), reference.value(pattern)}) {
      wrong += encoded(format.dtype, value) == reference.encode(value) ? 0 : 1;
      wrong += encoded(format.dtype, -value) == reference.encode(-value) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

void check_random_doubles(const HalfFormat& format) {
  const Reference reference(format);
  std::mt19937_64 random(7);
  int wrong = 0;
  for (int i = 0; i < 300'000; ++i) {
    // Any double, alternating with one whose exponent the format has.
    double value = std::bit_cast<double>(random());
    if (i % 2 == 1) {
      const int exponent = static_cast<int>(random() % 320) - 160;
      value = std::ldexp(static_cast<double>(random() >> 11), exponent - 52);
    }
    if (!std::isnan(value)) {
      wrong += encoded(format.dtype, value) == reference.encode(value) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bf16 pattern decodes to its value and encodes back", "[formats]") {
  check_every_pattern(kBF16);
}

TEST_CASE("every f16 pattern decodes to its value and encodes back", "[formats]") {
  check_every_pattern(kF16);
}

TEST_CASE("bf16 rounds to nearest even at and near every midpoint", "[formats]") {
  check_around_every_midpoint(kBF16);
}

TEST_CASE("f16 rounds to nearest even at and near every midpoint", "[formats]") {
  check_around_every_midpoint(kF16);
}

TEST_CASE("bf16 encodes random doubles like the reference", "[formats]") {
  check_random_doubles(kBF16);
}

TEST_CASE("f16 encodes random doubles like the reference", "[formats]") {
  check_random_doubles(kF16);
}

TEST_CASE("a double just above a bf16 tie is not rounded twice", "[formats]") {
  // 1 + 2^-8 is half way between 0x3f80 and 0x3f81. A float would lose the extra 2^-40.
  const double tie = 1.0 + 0x1p-8;
  REQUIRE(static_cast<double>(static_cast<float>(tie + 0x1p-40)) == tie);
  CHECK(encoded(DType::kBF16, tie) == 0x3f80);
  CHECK(encoded(DType::kBF16, tie + 0x1p-40) == 0x3f81);
  CHECK(encoded(DType::kBF16, 1.0 + 3 * 0x1p-8) == 0x3f82);
  CHECK(encoded(DType::kBF16, 1.0 + 3 * 0x1p-8 - 0x1p-40) == 0x3f81);
}

TEST_CASE("a double just above an f16 tie is not rounded twice", "[formats]") {
  const double tie = 1.0 + 0x1p-11;
  REQUIRE(static_cast<double>(static_cast<float>(tie + 0x1p-40)) == tie);
  CHECK(encoded(DType::kF16, tie) == 0x3c00);
  CHECK(encoded(DType::kF16, tie + 0x1p-40) == 0x3c01);
  CHECK(encoded(DType::kF16, -(tie + 0x1p-40)) == 0xbc01);
}

TEST_CASE("16-bit encoding overflows to infinity half a unit above the largest number",
          "[formats]") {
  CHECK(encoded(DType::kF16, 65504.0) == 0x7bff);
  CHECK(encoded(DType::kF16, std::nextafter(65520.0, 0.0)) == 0x7bff);
  CHECK(encoded(DType::kF16, 65520.0) == 0x7c00);
  CHECK(encoded(DType::kF16, -1e300) == 0xfc00);
  CHECK(encoded(DType::kBF16, std::nextafter(0x1.ffp127, 0.0)) == 0x7f7f);
  CHECK(encoded(DType::kBF16, 0x1.ffp127) == 0x7f80);
  CHECK(encoded(DType::kBF16, -1e300) == 0xff80);
  CHECK(encoded(DType::kBF16, kInfinity) == 0x7f80);
  CHECK(encoded(DType::kF16, -kInfinity) == 0xfc00);
}

TEST_CASE("16-bit encoding keeps subnormals and the sign of zero", "[formats]") {
  CHECK(encoded(DType::kF16, 0x1p-24) == 0x0001);
  CHECK(encoded(DType::kF16, 0x1p-25) == 0x0000);
  CHECK(encoded(DType::kF16, std::nextafter(0x1p-25, 1.0)) == 0x0001);
  CHECK(encoded(DType::kBF16, 0x1p-133) == 0x0001);
  CHECK(encoded(DType::kBF16, 0x1p-134) == 0x0000);
  CHECK(encoded(DType::kBF16, 5e-324) == 0x0000);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    CHECK(encoded(dtype, -0.0) == 0x8000);
    CHECK(encoded(dtype, -5e-324) == 0x8000);
    CHECK(std::signbit(decoded(dtype, 0x8000)));
  }
}

TEST_CASE("NaN stays NaN in every dtype", "[formats]") {
  for (const double nan : {kNaN, -kNaN, std::bit_cast<double>(0x7ff0000000000001U)}) {
    CHECK(std::isnan(decoded(DType::kF16, encoded(DType::kF16, nan))));
    CHECK(std::isnan(decoded(DType::kBF16, encoded(DType::kBF16, nan))));
  }
  std::array<std::byte, 4> single{};
  encode_from_double(DType::kF32, std::span(&kNaN, 1), single);
  double back = 0;
  decode_to_double(DType::kF32, single, std::span(&back, 1));
  CHECK(std::isnan(back));
}

TEST_CASE("f32 rounds once and f64 keeps every bit", "[formats]") {
  const std::array<double, 5> values{0.1, -0.0, 1e300, 5e-324, 1.0 + 0x1p-24 + 0x1p-50};
  std::array<double, 5> back{};
  std::array<std::byte, 40> wide{};
  encode_from_double(DType::kF64, values, wide);
  decode_to_double(DType::kF64, wide, back);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(same_bits(values[i], back[i]));
  }
  std::array<std::byte, 20> narrow{};
  encode_from_double(DType::kF32, values, narrow);
  decode_to_double(DType::kF32, narrow, back);
  CHECK(same_bits(back[0], 0x1.99999ap-4));
  CHECK(same_bits(back[1], -0.0));
  CHECK(back[2] == kInfinity);
  CHECK(same_bits(back[3], 0.0));
  CHECK(back[4] == 1.0 + 0x1p-23);
}

TEST_CASE("conversion refuses other dtypes and mismatched lengths", "[formats]") {
  std::array<double, 2> values{};
  std::array<std::byte, 4> bytes{};
  CHECK_THAT(refusal_of([&] {
               decode_to_double(DType::kI32, std::span(bytes), std::span(values).first(1));
             }),
             is_wrong_usage("I32", "F16, BF16, F32, F64"));
  CHECK_THAT(refusal_of([&] { decode_to_double(DType::kF8E4M3, bytes, values); }),
             is_wrong_usage("F8_E4M3"));
  CHECK_THAT(refusal_of([&] { encode_from_double(DType::kF32, values, bytes); }),
             is_wrong_usage("4 bytes", "2 elements of F32"));
}

TEST_CASE("dtype names are those of safetensors", "[formats]") {
  CHECK(dtype_from_name("BF16") == DType::kBF16);
  CHECK(name_of(DType::kF8E5M2Fnuz) == "F8_E5M2FNUZ");
  CHECK_FALSE(dtype_from_name("bf16"));
  CHECK_FALSE(dtype_from_name(""));
  CHECK_FALSE(dtype_from_name("F32 "));
}

}  // namespace
}  // namespace regroup
