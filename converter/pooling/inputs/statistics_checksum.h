// Checksums of what stands in a statistics file, against damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace regroup {

/// The format of files that have them; those of kCalibrationFormat, which earlier versions wrote,
/// have none.
inline constexpr const char* kCheckedCalibrationFormat = "2";

/// The tensor that holds one of each other tensor, U64 [n], in the order in which they stand.
inline constexpr const char* kCalibrationChecksums = "checksums";

/// The checksum of one tensor: of its name and bytes, and of what the file says of all: the
/// source's fingerprint and how many tokens.
std::uint64_t statistics_checksum(const std::string& source, const std::string& tokens,
                                  const std::string& name, std::span<const std::byte> bytes);

}  // namespace regroup
