#include "formats/base/crc32.h"

#include <array>
#include <cstring>

namespace regroup {
namespace {

constexpr std::uint32_t kPolynomial = 0xedb88320;  // reflected

using Table = std::array<std::uint32_t, 256>;

// Row n holds what a byte adds to the remainder if n more bytes follow it. With it, eight bytes are
// processed at a time ("slicing by eight", Kounavis and Berry 2005).
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? kPolynomial : 0U);
    }
    tables[0][byte] = remainder;
  }
  for (std::size_t row = 1; row < tables.size(); ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

}  // namespace

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;  // little-endian
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      crc ^= kTables[7 - i][word >> (8 * i) & 0xffU];
    }
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xffU];
  }
  return ~crc;
}

}  // namespace regroup
