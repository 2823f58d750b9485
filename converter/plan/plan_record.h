// The record of a conversion that its plan writes into the result.
#pragma once

#include "converter/plan/conversion_plan.h"
#include "converter/target/target.h"

namespace regroup {

/// Fills in the plan's metadata, and its config or GGUF metadata: those of `target` with the record
/// of the conversion. The rest of the plan must be set. Moves target.gguf.
void add_record(ConversionPlan& plan, const Model& source, Target& target);

}  // namespace regroup
