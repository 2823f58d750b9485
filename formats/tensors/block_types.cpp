// Numbers in any stored form: floats by dtype.cpp, ggml's block types here, which are dequantised,
// and quantised to Q8_0. Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#include <algorithm>
#include <array>
#include <cmath>

#include "formats/base/error.h"
#include "formats/tensors/dtype.h"

namespace regroup {

namespace {

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
    double value = 0.0;
    decode_to_double(DType::kF16, bytes_.subspan(at, 2), std::span(&value, 1));
    return value;
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

// A block's scale, and its minimum for types that have one.
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

struct ScaleAndMinimum {
  int scale = 0;
  int minimum = 0;
};

// The 12 bytes at offset 4 hold 8 scales and 8 minima of 6 bits. Those of the first 4 groups take
// the low 6 bits of a byte. The 2 bits left in these bytes are the top bits of the other groups.
ScaleAndMinimum packed_scale(const Block& block, std::size_t group) {
  constexpr std::size_t kAt = 4;
  if (group < 4) {
    return {block.u8(kAt + group) & 63, block.u8(kAt + group + 4) & 63};
  }
  return {block.low(kAt + group + 4) | block.two_bits(kAt + group - 4, 6) << 4,
          block.high(kAt + group + 4) | block.two_bits(kAt + group, 6) << 4};
}

// 32 bytes hold 64 elements: the low halves the first 32, the high halves the next 32.
int paired_nibble(const Block& block, std::size_t quants, std::size_t i) {
  const std::size_t at = quants + i / 64 * 32 + i % 32;
  return i % 64 < 32 ? block.low(at) : block.high(at);
}

double q4_k(const Block& block, BlockScale by, std::size_t i) {
  const ScaleAndMinimum group = packed_scale(block, i / 32);
  return rounded(by.scale * group.scale * paired_nibble(block, 16, i) - by.minimum * group.minimum);
}

double q5_k(const Block& block, BlockScale by, std::size_t i) {
  const ScaleAndMinimum group = packed_scale(block, i / 32);
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

struct ReaderRow {
  DType dtype;
  BlockReader read;
};

constexpr std::array<ReaderRow, 11> kReaders{{{DType::kQ4_0, read_elements<q4_0, 0>},
                                              {DType::kQ4_1, read_elements<q4_1, 0, 2>},
                                              {DType::kQ5_0, read_elements<q5_0, 0>},
                                              {DType::kQ5_1, read_elements<q5_1, 0, 2>},
                                              {DType::kQ8_0, read_elements<q8_0, 0>},
                                              {DType::kQ2K, read_elements<q2_k, 80, 82>},
                                              {DType::kQ3K, read_elements<q3_k, 108>},
                                              {DType::kQ4K, read_elements<q4_k, 0, 2>},
                                              {DType::kQ5K, read_elements<q5_k, 0, 2>},
                                              {DType::kQ6K, read_elements<q6_k, 208>},
                                              {DType::kMxfp4, read_mxfp4}}};

// Null for other types.
BlockReader reader_of_blocks(DType dtype) {
  const auto* const row = std::ranges::find(kReaders, dtype, &ReaderRow::dtype);
  return row == kReaders.end() ? nullptr : row->read;
}

// The number of blocks. Throws if bytes and elements do not agree.
std::size_t count_blocks(DType dtype, std::size_t bytes, std::size_t elements) {
  if (elements % block_elements(dtype) != 0 || bytes != bytes_of_elements(dtype, elements)) {
    throw_usage("{} bytes do not hold {} elements of {}", bytes, elements, name_of(dtype));
  }
  return elements / block_elements(dtype);
}

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
  const double stored = scale;
  encode_from_double(DType::kF16, std::span(&stored, 1), block.first(2));
  // ggml divides by the unrounded scale, and rounds halves away from zero.
  const float exact_inverse = 1.0F / scale;
  const float inverse = std::isfinite(exact_inverse) ? exact_inverse : 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float quant = std::round(static_cast<float>(values[i]) * inverse);
    block[2 + i] = static_cast<std::byte>(static_cast<int>(quant));
  }
}

// Each value equals the float that ggml's reference code computes: products of scales and quants
// are exact in float, and adding a block's minimum rounds once.
void dequantise_to_double(DType dtype, std::span<const std::byte> blocks,
                          std::span<double> values) {
  const BlockReader read = reader_of_blocks(dtype);
  if (read == nullptr) {
    throw_usage("dtype {} cannot be dequantised", name_of(dtype));
  }
  const std::size_t count = count_blocks(dtype, blocks.size(), values.size());
  const std::size_t elements = block_elements(dtype);
  const std::size_t bytes = block_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    read(Block(blocks.subspan(i * bytes, bytes)), values.subspan(i * elements, elements));
  }
}

// Bit for bit as ggml's reference code does from the values rounded to float.
void quantise_to_q8_0(std::span<const double> values, std::span<std::byte> blocks) {
  const std::size_t count = count_blocks(DType::kQ8_0, blocks.size(), values.size());
  const std::size_t elements = block_elements(DType::kQ8_0);
  const std::size_t bytes = block_bytes(DType::kQ8_0);
  for (std::size_t i = 0; i < count; ++i) {
    write_q8_0(values.subspan(i * elements, elements), blocks.subspan(i * bytes, bytes));
  }
}

}  // namespace

bool can_decode(DType dtype) {
  return is_pooling_dtype(dtype) || reader_of_blocks(dtype) != nullptr;
}

void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (is_block_type(dtype)) {
    dequantise_to_double(dtype, bytes, values);
  } else {
    decode_to_double(dtype, bytes, values);
  }
}

void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  if (dtype == DType::kQ8_0) {
    quantise_to_q8_0(values, bytes);
  } else {
    encode_from_double(dtype, values, bytes);
  }
}

}  // namespace regroup
