// The memory of a planned run, as text and as JSON.
#pragma once

#include <string>

#include "formats/base/json.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

/// Lines of a plan: what the run needs and for what, what is free, its memory mode and the others.
std::string memory_text(const UptrainPlan& plan);

/// What each of several ranks holds, why, and what other ways to share would need.
std::string sharding_text(const UptrainPlan& plan);
Json sharding_json(const UptrainPlan& plan);

/// The members of a plan's JSON that are about memory.
Json memory_json(const UptrainPlan& plan);

}  // namespace regroup
