// The plan of the reference that a result is compared with before it is published.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// plan_conversion() for a result that stays in memory: since no loader reads it, it may be one
/// that loaders would misread.
ConversionPlan plan_reference(const Model& source, const ConversionRequest& request);

}  // namespace regroup
