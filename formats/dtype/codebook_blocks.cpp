#include <bit>

#include "formats/dtype/block_readers.h"
#include "formats/dtype/codebooks.h"

namespace regroup {
namespace {

// Seven bits hold eight signs: the number of minus signs is even.
double sign_of_seven(std::uint32_t bits, std::size_t i) {
  bits &= 127U;
  const bool negative = i < 7 ? (bits >> i & 1U) != 0 : std::popcount(bits) % 2 == 1;
  return negative ? -1.0 : 1.0;
}

double sign_of(const Block& block, std::size_t signs, std::size_t i) {
  return block.bit(signs + i / 8, i % 8) != 0 ? -1.0 : 1.0;
}

// Numbers in codebooks have 8 low bits in a byte, and their high bits elsewhere.
std::size_t group_number(int low, int high) { return static_cast<std::size_t>(low | high << 8); }

}  // namespace

// A block of these types has 256 elements. A 4-bit scale s means s + 1/2.

void read_iq2_xxs(const Block& block, std::span<double> values) {
  const Codebook& book = iq2_xxs_codebook();
  const double scale = block.half(0) / 4;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = 2 + i / 32 * 8;  // four numbers, then their signs and the scale
    const std::uint32_t signs_and_scale = block.u32(at + 4);
    const auto group = static_cast<std::size_t>(block.u8(at + i % 32 / 8));
    const double sign = sign_of_seven(signs_and_scale >> i % 32 / 8 * 7, i % 8);
    values[i] = scale * (0.5 + (signs_and_scale >> 28)) * book.value(group, i % 8) * sign;
  }
}

void read_iq2_xs(const Block& block, std::span<double> values) {
  const Codebook& book = iq2_xs_codebook();
  const double scale = block.half(0) / 4;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number_and_signs = static_cast<std::uint32_t>(block.u16(2 + i / 8 * 2));
    const double sign = sign_of_seven(number_and_signs >> 9, i % 8);
    values[i] = scale * (0.5 + block.half_byte(66, i / 16)) *
                book.value(number_and_signs & 511U, i % 8) * sign;
  }
}

void read_iq2_s(const Block& block, std::span<double> values) {
  const Codebook& book = iq2_s_codebook();
  const double scale = block.half(0) / 4;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t group =
        group_number(block.u8(2 + i / 8), block.two_bits(66 + i / 32, i / 8 % 4 * 2));
    values[i] = scale * (0.5 + block.half_byte(74, i / 16)) * book.value(group, i % 8) *
                sign_of(block, 34, i);
  }
}

void read_iq3_xxs(const Block& block, std::span<double> values) {
  const Codebook& book = iq3_xxs_codebook();
  const double scale = block.half(0) / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t signs_and_scale = block.u32(66 + i / 32 * 4);
    const auto group = static_cast<std::size_t>(block.u8(2 + i / 4));
    const double sign = sign_of_seven(signs_and_scale >> i % 32 / 8 * 7, i % 8);
    values[i] = scale * (0.5 + (signs_and_scale >> 28)) * book.value(group, i % 4) * sign;
  }
}

void read_iq3_s(const Block& block, std::span<double> values) {
  const Codebook& book = iq3_s_codebook();
  const double scale = block.half(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t group = group_number(block.u8(2 + i / 4), block.bit(66 + i / 32, i / 4 % 8));
    values[i] = scale * (1 + 2 * block.half_byte(106, i / 32)) * book.value(group, i % 4) *
                sign_of(block, 74, i);
  }
}

// In IQ1 types an eighth is added to each element of a group, or subtracted.
void read_iq1_s(const Block& block, std::span<double> values) {
  const Codebook& book = iq1_codebook();
  const double scale = block.half(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int high_bits = block.u16(34 + i / 32 * 2);  // of four numbers; a scale; a sign
    const std::size_t group = group_number(block.u8(2 + i / 8), high_bits >> i / 8 % 4 * 3 & 7);
    const double shift = (high_bits & 0x8000) != 0 ? -0.125 : 0.125;
    values[i] = scale * (2 * (high_bits >> 12 & 7) + 1) * (book.value(group, i % 8) + shift);
  }
}

void read_iq1_m(const Block& block, std::span<double> values) {
  constexpr std::size_t kScales = 48;  // four u16: four scales of 3 bits, 4 bits of the block's
  const Codebook& book = iq1_codebook();
  int scale_bits = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    scale_bits |= block.u16(kScales + 2 * i) >> 12 << 4 * i;
  }
  const double scale = half_of_bits(scale_bits);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int high_bits = block.half_byte(32, i / 8);
    const std::size_t group = group_number(block.u8(i / 8), high_bits & 7);
    const double shift = (high_bits & 8) != 0 ? -0.125 : 0.125;
    const int of_group = block.u16(kScales + i / 64 * 2) >> i / 16 % 4 * 3 & 7;
    values[i] = scale * (2 * of_group + 1) * (book.value(group, i % 8) + shift);
  }
}

}  // namespace regroup
