#include "formats/base/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace regroup {

namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9U;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5U;
constexpr std::size_t kStripe = 32;

template <typename T>
std::uint64_t load(std::span<const std::byte> bytes) {
  T value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

// Takes whole stripes off the front of `bytes`.
std::uint64_t digest_stripes(std::span<const std::byte>& bytes) {
  std::array<std::uint64_t, 4> lanes{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane] = round(lanes[lane], load<std::uint64_t>(bytes.subspan(8 * lane)));
    }
  }
  std::uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                       std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) {
    hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  return hash;
}

std::uint64_t digest_tail(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  }
  if (bytes.size() >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(bytes) * kPrime1, 23) * kPrime2 + kPrime3;
    bytes = bytes.subspan(4);
  }
  for (const std::byte byte : bytes) {
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(byte) * kPrime5, 11) * kPrime1;
  }
  return hash;
}

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> bytes) {
  const std::uint64_t length = bytes.size();
  std::uint64_t hash = length >= kStripe ? digest_stripes(bytes) : kPrime5;
  hash = digest_tail(hash + length, bytes);
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string checksum_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", xxh64(bytes));
}

std::string checksum_of(std::string_view text) {
  return checksum_of(std::as_bytes(std::span(text)));
}

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
