// The description of a run: compared between ranks before it starts, and recorded in its result.
#pragma once

#include <optional>
#include <string>

#include "formats/json/json.h"
#include "uptrain/evaluate/evaluate.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// What must be equal on all ranks: the recipe, and the settings that time collective operations.
Json asked_of_rank(const UptrainPlan& plan, const Model& source, bool resume);

/// config.json of the result: that of the source plus how it was trained, and the losses on the
/// evaluation data before and `after`, if there is any.
std::string config_of_result(const UptrainPlan& plan, const Model& source,
                             const TrainingProgress& progress,
                             const std::optional<Evaluation>& after);

}  // namespace regroup
