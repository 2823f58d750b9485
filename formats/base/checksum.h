// Checksums of bytes: XXH64 and CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace regroup {

// XXH64, a fast checksum that detects damaged files. It does not protect against tampering.
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

/// The XXH64 of `bytes` with seed 0.
std::uint64_t xxh64(std::span<const std::byte> bytes);

/// The XXH64 of `bytes` as 16 hexadecimal digits.
std::string checksum_of(std::span<const std::byte> bytes);
std::string checksum_of(std::string_view text);

// CRC-32 (IEEE 802.3), as used in ZIP archives.

/// Extends the CRC-32 `before` with `bytes`. `before` is 0 for the first bytes.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace regroup
