// Warns of windows of text that are longer than a model was made for.
#pragma once

#include <cstdint>

#include "cli/terminal/console.h"
#include "formats/model/model.h"

namespace regroup {

/// Prints the warning of warning_of_context() on stderr, if there is one.
void warn_of_context(const Model& model, std::int64_t context, const Console& console);

}  // namespace regroup
