// A short checksum that distinguishes checkpoints by their contents.
#pragma once

#include <string>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// A checksum of all tensors' names, dtypes and shapes, samples of their contents, and `text` (such
/// as the config). Reads a few kilobytes of each tensor.
std::string fingerprint_of(const Checkpoint& checkpoint, const std::string& text);

}  // namespace regroup
