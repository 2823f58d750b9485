// What a user must know of a conversion's quality before using its result.
#pragma once

#include <string>
#include <vector>

#include "converter/execute/execute_plan.h"
#include "converter/plan/conversion_plan.h"

namespace regroup {

/// One line each, with the command that does better. `source`: as it was given; `layers`: what was
/// measured, if anything.
std::vector<std::string> conversion_warnings(const ConversionPlan& plan, const std::string& source,
                                             const std::vector<LayerReport>& layers);

}  // namespace regroup
