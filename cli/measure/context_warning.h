// A warning for windows of text that are longer than what a model was made for.
#pragma once

#include <cstdint>

#include "cli/terminal/console.h"
#include "formats/model/model.h"

namespace regroup {

/// A line on stderr, or nothing: see warning_of_context().
void warn_of_context(const Model& model, std::int64_t context, const Console& console);

}  // namespace regroup
