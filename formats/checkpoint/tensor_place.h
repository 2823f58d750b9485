// How errors name a tensor and its file.
#pragma once

#include <string>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// The path of the checkpoint's only file, or the directory of its files.
std::string place_of(const Checkpoint& checkpoint);

/// "model/model.safetensors: tensor lm_head.weight".
std::string place_of(const Checkpoint& checkpoint, const TensorInfo& tensor);

}  // namespace regroup
