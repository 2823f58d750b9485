// Reads numbers from files.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "formats/base/file.h"

namespace regroup {

static_assert(std::endian::native == std::endian::little, "numbers are read in memory order");

/// The little-endian number at byte `offset`. Throws like File::read_at().
template <typename T>
T read_number(const File& file, std::uint64_t offset) {
  std::array<std::byte, sizeof(T)> bytes;
  file.read_at(offset, bytes);
  return std::bit_cast<T>(bytes);
}

}  // namespace regroup
