// CRC-32 of IEEE 802.3, as ZIP archives use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup {

/// The CRC-32 of some bytes that follow others whose CRC-32 is `before` (0: there are none).
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace regroup
