// Functions that read one block of each of ggml's types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/dtype/dtype.h"

namespace regroup {

/// A half-precision number from its bits.
inline double half_of_bits(int bits) {
  const auto stored = static_cast<std::uint16_t>(bits);
  double value = 0.0;
  decode_to_double(DType::kF16, std::as_bytes(std::span(&stored, 1)), std::span(&value, 1));
  return value;
}

/// The bytes of one block.
class Block {
 public:
  explicit Block(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int u8(std::size_t at) const { return std::to_integer<int>(bytes_[at]); }
  int i8(std::size_t at) const { return static_cast<std::int8_t>(u8(at)); }
  int u16(std::size_t at) const { return u8(at) | u8(at + 1) << 8; }
  std::uint32_t u32(std::size_t at) const {
    return static_cast<std::uint32_t>(u16(at)) | static_cast<std::uint32_t>(u16(at + 2)) << 16;
  }
  int low(std::size_t at) const { return u8(at) & 0xf; }
  int high(std::size_t at) const { return u8(at) >> 4; }
  /// Half `i` of the bytes from `at`: two to a byte, the low one first.
  int half_byte(std::size_t at, std::size_t i) const {
    return i % 2 == 0 ? low(at + i / 2) : high(at + i / 2);
  }
  int two_bits(std::size_t at, std::size_t shift) const { return (u8(at) >> shift) & 3; }
  int bit(std::size_t at, std::size_t shift) const { return (u8(at) >> shift) & 1; }

  double half(std::size_t at) const { return half_of_bits(u16(at)); }

 private:
  std::span<const std::byte> bytes_;
};

/// In blocks of 32, the low halves of 16 bytes hold the first 16 quants, the high halves the
/// others.
inline int nibble(const Block& block, std::size_t quants, std::size_t i) {
  return i < 16 ? block.low(quants + i) : block.high(quants + i - 16);
}

/// In the K types a block has 256 elements. 32 bytes hold 128 quants of two bits: each of the four
/// shifts selects 32 of them.
inline int quarter(const Block& block, std::size_t quants, std::size_t i) {
  return block.two_bits(quants + i / 128 * 32 + i % 32, i % 128 / 32 * 2);
}

using BlockReader = void (*)(const Block& block, std::span<double> values);

/// Types whose groups of elements are numbers of a codebook (formats/dtype/codebooks.h).
void read_iq2_xxs(const Block& block, std::span<double> values);
void read_iq2_xs(const Block& block, std::span<double> values);
void read_iq2_s(const Block& block, std::span<double> values);
void read_iq3_xxs(const Block& block, std::span<double> values);
void read_iq3_s(const Block& block, std::span<double> values);
void read_iq1_s(const Block& block, std::span<double> values);
void read_iq1_m(const Block& block, std::span<double> values);

/// Types with 16 values that are not evenly spaced, and with three values.
void read_iq4_nl(const Block& block, std::span<double> values);
void read_iq4_xs(const Block& block, std::span<double> values);
void read_mxfp4(const Block& block, std::span<double> values);
void read_tq1_0(const Block& block, std::span<double> values);
void read_tq2_0(const Block& block, std::span<double> values);

}  // namespace regroup
