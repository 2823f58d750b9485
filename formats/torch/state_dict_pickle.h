// Encodes the pickle in torch files: an OrderedDict of tensors, each with its own storage.
#pragma once

#include <span>
#include <string>

#include "formats/checkpoint/checkpoint_writer.h"

namespace regroup {

/// A protocol 2 pickle in which tensor i is row-major in storage "i". Throws kUsage naming a tensor
/// whose dtype torch does not support.
std::string pickle_state_dict(std::span<const OutputTensor> tensors);

}  // namespace regroup
