// The torch.save format (.bin, .pt, .pth): a ZIP archive of one pickle and the tensor data.
#pragma once

#include <filesystem>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Opens one file. Reads its directory and its pickle; executes nothing. Tensors may share storage
/// and have strides. Throws kBadInput naming file and tensor for anything that is not a state dict
/// and for views that exceed their storage.
Checkpoint::Part open_torch_checkpoint(const std::filesystem::path& path);

}  // namespace regroup
