// Plans the tensors of a conversion's result, one step for each.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// Fills in plan.steps and plan.dropped for a plan whose specs, container and pooling are set.
/// Throws kUsage for a tensor of `source` that the result cannot name or whose type it cannot hold,
/// kBadInput for tensors that are missing, of the wrong shape, or part of a pooled projection that
/// the config does not describe.
void plan_steps(ConversionPlan& plan, const Model& source, const ConversionRequest& request);

}  // namespace regroup
