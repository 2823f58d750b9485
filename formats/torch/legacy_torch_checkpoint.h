// The torch.save format before 1.6: several pickles, then the data of each storage.
#pragma once

#include <filesystem>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// The first bytes of such a file: a protocol 2 pickle of a magic number.
inline constexpr std::string_view kLegacyTorchMagic(
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

/// Opens one file. Reads its pickles and the lengths of its storages; executes nothing. Throws
/// kBadInput like open_torch_checkpoint(), and if the last storage does not end at the end of the
/// file.
Checkpoint::Part open_legacy_torch_checkpoint(const std::filesystem::path& path);

}  // namespace regroup
