// Reading torch.save() files, in the zip form and in the older one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "formats/tensors/checkpoint.h"

namespace regroup {

/// How torch names a dtype: by a storage class ("HalfStorage"), or if there is none by a
/// torch.dtype ("float8_e4m3fn") on an UntypedStorage. Exactly one is set.
struct TorchNumbers {
  DType dtype;
  std::string_view storage_class;
  std::string_view name = {};
};

/// Null if torch does not support the dtype.
const TorchNumbers* torch_numbers_of(DType dtype);

// The torch.save format before 1.6: several pickles, then the data of each storage.

/// The first bytes of such a file: a protocol 2 pickle of a magic number.
inline constexpr std::string_view kLegacyTorchMagic(
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

/// Opens one file. Reads its pickles and the lengths of its storages; executes nothing. Throws
/// kBadInput like open_torch_checkpoint(), and if the last storage does not end at the end of the
/// file.
Checkpoint::Part open_legacy_torch_checkpoint(const std::filesystem::path& path);

// The torch.save format (.bin, .pt, .pth): a ZIP archive of one pickle and the tensor data.

/// Opens one file. Reads its directory and its pickle; executes nothing. Tensors may share storage
/// and have strides. Throws kBadInput naming file and tensor for anything that is not a state dict
/// and for views that exceed their storage.
Checkpoint::Part open_torch_checkpoint(const std::filesystem::path& path);

}  // namespace regroup
