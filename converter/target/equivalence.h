// Whether two specs describe the same computation, whatever their tensors are called and however
// they are laid out.
#pragma once

#include <string>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// What keeps `target` from computing exactly what `source` computes once its tensors are
/// mapped to it, each as "<what>: <source's>, <target's>"; empty when nothing does. Layout is free:
/// names, packing, transposition, the pairing of rotating features, one norm for two in parallel
/// blocks, absent biases that the target stores as zeros, kv heads stored several times.
std::vector<std::string> obstacles_between(const ModelSpec& source, const ModelSpec& target);

}  // namespace regroup
