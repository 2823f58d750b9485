// Checks that two specs describe the same computation, independent of tensor names and layouts.
#pragma once

#include <string>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// The differences that keep `target` from computing exactly what `source` computes with mapped
/// tensors, each as "<what>: <source's>, <target's>"; empty if there are none. These may differ:
/// names, packing, transposition, the pairing of RoPE's features, one norm for two in parallel
/// blocks, absent biases that the target stores as zeros, repeated kv heads.
std::vector<std::string> obstacles_between(const ModelSpec& source, const ModelSpec& target);

}  // namespace regroup
