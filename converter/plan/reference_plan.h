// What a result is compared with before it appears.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// plan_conversion() of what is computed in memory and never written: no loader sees it, so that it
/// may be what loaders would misread.
ConversionPlan plan_reference(const Model& source, const ConversionRequest& request);

}  // namespace regroup
