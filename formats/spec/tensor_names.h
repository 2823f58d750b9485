// All tensor names in a ModelSpec.
#pragma once

#include <functional>
#include <string>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Replaces every tensor name in `spec` by `rename(name)`. Empty names stay empty.
void rename_tensors(ModelSpec& spec, const std::function<std::string(const std::string&)>& rename);

}  // namespace regroup
