// Too many tensors in a safetensors header, found before anything is kept of it.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/file.h"

namespace regroup {

/// Most tensors that a safetensors file may name, and most keys of its __metadata__: as many as are
/// read in a tenth of a second. Published files have a few thousand, and some ten.
inline constexpr std::uint64_t kMaxSafetensorsTensors = 100'000;
inline constexpr std::uint64_t kMaxSafetensorsKeys = 10'000;

/// Throws kBadInput if the header, `length` bytes from byte `begin` on, has more objects than that
/// many entries, __metadata__ and the header itself. One pass through a small buffer, and none over
/// a header too short for so many. `where` (a file name) opens the error message.
void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where);

}  // namespace regroup
