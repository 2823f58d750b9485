#include <array>
#include <cmath>

#include "formats/dtype/block_readers.h"

namespace regroup {
namespace {

// The 16 values of IQ4_NL and IQ4_XS, closer together near 0.
constexpr std::array<int, 16> kFourBitValues{-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};

// Twice the values of E2M1.
constexpr std::array<int, 16> kTwiceE2M1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

int value_in(const std::array<int, 16>& values, int number) {
  return values[static_cast<std::size_t>(number)];
}

// Digit `place` of a byte that holds five digits to the base 3 as a fraction of 256, as TQ1_0 does.
int ternary_digit(int byte, std::size_t place) {
  constexpr std::array<int, 5> kPowers{1, 3, 9, 27, 81};
  return (byte * kPowers[place] % 256) * 3 / 256;
}

}  // namespace

void read_iq4_nl(const Block& block, std::span<double> values) {
  const double scale = block.half(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * value_in(kFourBitValues, nibble(block, 2, i));
  }
}

void read_iq4_xs(const Block& block, std::span<double> values) {
  const double scale = block.half(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t group = i / 32;
    const int high_bits = block.u16(2) >> group * 2 & 3;
    const int of_group = (block.half_byte(4, group) | high_bits << 4) - 32;
    values[i] = scale * of_group * value_in(kFourBitValues, nibble(block, 8 + group * 16, i % 32));
  }
}

// The scale is a power of two, and as in ggml no code of it is a NaN.
void read_mxfp4(const Block& block, std::span<double> values) {
  const double scale = std::ldexp(1.0, block.u8(0) - 128);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * value_in(kTwiceE2M1, nibble(block, 1, i));
  }
}

// 32 bytes hold 160 elements, 16 bytes the next 80, and 4 bytes the last 16.
void read_tq1_0(const Block& block, std::span<double> values) {
  const double scale = block.half(52);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i < 160 ? 0 : i < 240 ? 160 : 240;
    const std::size_t bytes = i < 160 ? 32 : i < 240 ? 16 : 4;
    const std::size_t at = begin / 5 + (i - begin) % bytes;
    values[i] = scale * (ternary_digit(block.u8(at), (i - begin) / bytes) - 1);
  }
}

void read_tq2_0(const Block& block, std::span<double> values) {
  const double scale = block.half(64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (quarter(block, 0, i) - 1);
  }
}

}  // namespace regroup
