// Detects too many tensors in a safetensors header before it is parsed.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/file.h"

namespace regroup {

/// The most tensors in a safetensors file, and the most keys in its __metadata__: as many as can be
/// read in a tenth of a second. Published files have a few thousand tensors and about ten keys.
inline constexpr std::uint64_t kMaxSafetensorsTensors = 100'000;
inline constexpr std::uint64_t kMaxSafetensorsKeys = 10'000;

/// Throws kBadInput if the header (`length` bytes from byte `begin` on) contains more objects than
/// kMaxSafetensorsTensors entries, __metadata__ and the header itself. Makes one pass through a
/// small buffer; headers too short for that many entries are not read. The error message begins
/// with `where` (a file name).
void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where);

}  // namespace regroup
