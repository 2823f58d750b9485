// Notes for the user about the result of a conversion.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// Appends to plan.notes of an otherwise complete plan: which programs load the result, limits of
/// the pooling method on this model, which heads moved, which tensors grow because their type
/// cannot be written.
void add_notes(ConversionPlan& plan, const Checkpoint& source);

}  // namespace regroup
