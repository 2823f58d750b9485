// The steps of a plan, and what the user is told of it.
#pragma once

#include "converter/convert/conversion_plan.h"

namespace regroup {

// Plans the tensors of a conversion's result, one step for each.

/// Fills in plan.steps and plan.dropped for a plan whose specs, container and pooling are set.
/// Throws kUsage for a tensor of `source` that the result cannot name or whose type it cannot hold,
/// kBadInput for tensors that are missing, of the wrong shape, or part of a pooled projection that
/// the config does not describe.
void plan_steps(ConversionPlan& plan, const Model& source, const ConversionRequest& request);

// Notes for the user about the result of a conversion.

/// Appends to plan.notes of an otherwise complete plan: which programs load the result, limits of
/// the pooling method on this model, which heads moved, which tensors grow because their type
/// cannot be written.
void add_notes(ConversionPlan& plan, const Checkpoint& source);

}  // namespace regroup
