// Llama in Meta's convention, with params.json as the config.
#pragma once

#include <string_view>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The spec of the model that `params` (the contents of params.json) describes. Sizes it lacks are
/// derived from tensor shapes. Error messages begin with `where` (its file name). Throws kBadInput
/// for missing or invalid values and for quantised weights. An unknown key, or a RoPE scaling with
/// an unknown factor, makes the model not computable.
ModelSpec describe_meta(const Json& params, const Checkpoint& checkpoint, std::string_view where);

}  // namespace regroup
