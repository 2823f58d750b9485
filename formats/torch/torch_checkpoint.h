// torch.save's files (.bin, .pt, .pth): a ZIP archive of one pickle and the tensors' numbers.
#pragma once

#include <filesystem>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Opens one file; reads its directory and its pickle, executes nothing. Tensors may share storage
/// and have strides. Throws kBadInput naming file and tensor for anything a state dict is not, and
/// for views that leave their storage.
Checkpoint::Part open_torch_checkpoint(const std::filesystem::path& path);

}  // namespace regroup
