// What a run says of itself: to the other ranks before it begins, and in its result.
#pragma once

#include <string>

#include "formats/json/json.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// What must not differ between ranks: the recipe, and what decides when they do things together.
Json asked_of_rank(const UptrainPlan& plan, const Model& source, bool resume);

/// config.json of the result: what it was made from says so already, this adds how it was trained.
std::string config_of_result(const UptrainPlan& plan, const Model& source,
                             const TrainingProgress& progress);

}  // namespace regroup
