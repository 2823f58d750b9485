// The HTML page of `regroup plan`.
#pragma once

#include <string>

#include "cli/report/plan_report.h"

namespace regroup {

/// A complete HTML document.
std::string plan_page(const ServingPlan& plan);

}  // namespace regroup
