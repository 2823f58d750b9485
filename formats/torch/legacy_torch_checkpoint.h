// torch.save's files before 1.6: a few pickles in a row, then the numbers of each storage.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// What such a file begins with: a pickle of protocol 2 that holds a magic number.
inline constexpr std::string_view kLegacyTorchMagic(
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

/// Opens one file; reads its pickles and the lengths of its storages, executes nothing. Throws
/// kBadInput as open_torch_checkpoint() does, and when storages and file do not end together.
Checkpoint::Part open_legacy_torch_checkpoint(const std::filesystem::path& path);

}  // namespace regroup
