// What `regroup plan` found, as a page.
#pragma once

#include <string>

#include "cli/report/plan_report.h"

namespace regroup {

/// The text of an HTML document.
std::string plan_page(const ServingPlan& plan);

}  // namespace regroup
