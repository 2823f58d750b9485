// Checksums of the tensors in a statistics file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace regroup {

/// The format of files with checksums; files of kCalibrationFormat, written by earlier versions,
/// have none.
inline constexpr const char* kCheckedCalibrationFormat = "2";

/// The tensor that holds the checksums of all others, U64 [n], in file order.
inline constexpr const char* kCalibrationChecksums = "checksums";

/// The checksum of one tensor: of its name and bytes, the source's fingerprint and the number of
/// tokens.
std::uint64_t statistics_checksum(const std::string& source, const std::string& tokens,
                                  const std::string& name, std::span<const std::byte> bytes);

}  // namespace regroup
