// The tensors of a result: from which tensors of the source each is made, the steps of a plan,
// and what the user is told of it.
#pragma once

#include <vector>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/tensor_step.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Maps the tensors of one model to those of an equivalent one. Containers, layouts and exact
// re-targets are all expressed as a target ModelSpec.
//
// A plan has three views of one model that compute the same, see obstacles_between(): `spec`, as
// stored in `source`; `grouped`, the same with the remaining kv heads; and `target`, the result,
// which may store a kv head several times.

/// Steps for the attention tensors of the plan's target, in its order. Throws kBadInput for tensors
/// that cannot be pooled.
std::vector<TensorStep> map_attention_tensors(const ConversionPlan& plan, const Checkpoint& source);

/// Steps for every tensor of the plan's target.
std::vector<TensorStep> map_model_tensors(const ConversionPlan& plan, const Checkpoint& source);

/// Fills in plan.steps and plan.dropped for a plan whose specs, container and pooling are set.
/// Throws kUsage for a tensor of `source` that the result cannot name or whose type it cannot hold,
/// kBadInput for tensors that are missing, of the wrong shape, or part of a pooled projection that
/// the config does not describe.
void plan_steps(ConversionPlan& plan, const Model& source);

/// Appends to plan.notes of an otherwise complete plan: which programs load the result, limits of
/// the pooling method on this model, which heads moved, which tensors grow because their type
/// cannot be written.
void add_notes(ConversionPlan& plan, const Checkpoint& source);

}  // namespace regroup
