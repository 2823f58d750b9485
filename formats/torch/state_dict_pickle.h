// The pickle inside the torch files we write: an OrderedDict of tensors, each with a storage of its
// own.
#pragma once

#include <span>
#include <string>

#include "formats/checkpoint/checkpoint_writer.h"

namespace regroup {

/// A pickle of protocol 2 in which tensor i lies in storage "i", row-major. Throws kUsage naming a
/// tensor whose dtype torch does not have.
std::string pickle_state_dict(std::span<const OutputTensor> tensors);

}  // namespace regroup
