// Llama in Meta's own convention, which has params.json for a config.
#pragma once

#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The spec of the model that `params` (of params.json) describes; what it leaves open is read off
/// the tensors' shapes. `where` (its file name) opens error messages. Throws kBadInput for values
/// that are missing or impossible, and for quantised weights. A key that is not known, or a RoPE
/// scaling whose factor is not, makes the model not computable.
ModelSpec describe_meta(const Json& params, const Checkpoint& checkpoint, std::string_view where);

}  // namespace regroup
