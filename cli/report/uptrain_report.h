// The output of regroup uptrain: the plan with its memory, the progress of the run, and the
// result.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "cli/shell/console.h"
#include "formats/base/json.h"
#include "uptrain/run/distill.h"
#include "uptrain/run/uptrain.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

/// Lines of a plan: what the run needs and for what, what is free, its memory mode and the others.
std::string memory_text(const UptrainPlan& plan);

/// What each of several ranks holds, why, and what other ways to share would need.
std::string sharding_text(const UptrainPlan& plan);
Json sharding_json(const UptrainPlan& plan);

/// The members of a plan's JSON that are about memory.
Json memory_json(const UptrainPlan& plan);

/// The plan as lines of text.
std::string plan_text(const UptrainPlan& plan);
/// Width of the names at the beginning of its lines, in columns.
inline constexpr std::size_t kPlanIndent = 10;

/// The same as JSON.
Json plan_json(const UptrainPlan& plan);

/// A line on the learning rate that trials have chosen.
std::string rate_text(const RateChoice& choice);

/// Calls `train` and shows its progress, then prints the result of the complete run, as text or
/// JSON. `begun` is called once OUT.run exists.
void train_and_report(const std::function<UptrainResult(UptrainObserver&)>& train,
                      const UptrainPlan& plan, const std::function<void()>& begun, bool json,
                      const Console& console);

}  // namespace regroup
