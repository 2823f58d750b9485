// The tensors of a conversion's result: the part of a plan that is one step for each of them.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// Fills in plan.steps and plan.dropped for a plan whose specs, container and pooling are set.
/// Throws kUsage for a tensor of `source` that the result has no place for or no type to hold,
/// kBadInput for tensors that are missing, misshapen or beside what is pooled.
void plan_steps(ConversionPlan& plan, const Model& source, const ConversionRequest& request);

}  // namespace regroup
