// What a user should know of a conversion's result, in sentences.
#pragma once

#include "converter/plan/conversion_plan.h"

namespace regroup {

/// Appends to plan.notes, for a plan that is otherwise complete: who loads the result, what a
/// pooling method could not do to this model, which heads moved or did not, what grows because its
/// type cannot be written.
void add_notes(ConversionPlan& plan, const Checkpoint& source);

}  // namespace regroup
