// The comparison of models on held-out text, as text and JSON.
#pragma once

#include <string>

#include "cli/measure/text_conversion.h"
#include "cli/terminal/console.h"
#include "formats/json/json.h"

namespace regroup {

Json held_out_json(const HeldOutReport& report);

/// A line that names the text, and a table with a row for each model.
std::string held_out_table(const HeldOutReport& report, const Console& console);

}  // namespace regroup
