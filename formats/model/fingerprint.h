// A few digits that tell the contents of one checkpoint from those of another.
#pragma once

#include <string>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// A checksum of all tensors' names, dtypes and shapes, of samples of their contents, and of
/// `text`, which stands beside them. Reads some kilobytes of each.
std::string fingerprint_of(const Checkpoint& checkpoint, const std::string& text);

}  // namespace regroup
