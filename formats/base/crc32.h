// CRC-32 (IEEE 802.3), as used in ZIP archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup {

/// Extends the CRC-32 `before` with `bytes`. `before` is 0 for the first bytes.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace regroup
