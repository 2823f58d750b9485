// Warnings about the quality of a conversion's result, and about runtimes that misread it.
#pragma once

#include <string>
#include <vector>

#include "converter/execute/execute_plan.h"
#include "converter/plan/conversion_plan.h"

namespace regroup {

/// One line for each warning; those about quality name the option that gives a better result.
/// `layers` are the measurements, if any.
std::vector<std::string> conversion_warnings(const ConversionPlan& plan,
                                             const std::vector<LayerReport>& layers);

}  // namespace regroup
