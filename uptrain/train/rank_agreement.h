// What two runs or two ranks must agree on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/json.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/training_state.h"

namespace regroup {

/// Each setting that only one of two recipes has, or that differs between them, with the option
/// that sets it, joined by "; ". Empty if there is none. `form` says how, such as "{} was {}, now
/// {}": the setting, then its value in `first` and in `second`, "none" where it is missing or null.
std::string recipe_differences(const Json& first, const Json& second, std::string_view form);

// What ranks exchange besides tensors.

/// Throws kUsage on every rank, naming rank and settings, unless `asked`, a JSON object, is equal
/// on all.
void check_same_on_all(ProcessGroup& group, const Json& asked);

/// What went wrong in `work`; empty if nothing did.
std::string fault_of(const std::function<void()>& work);

/// Of what went wrong on all ranks, the first rank's with its number; empty if nothing did. `group`
/// is null for a single process.
std::string first_fault(ProcessGroup* group, const std::string& own);

/// The mean over the shares that the ranks have evaluated; none if one of them was stopped.
std::optional<Evaluation> evaluation_of_all(const ProcessGroup& group,
                                            const std::optional<Evaluation>& own);

/// The progress of the first rank.
std::optional<TrainingProgress> progress_of_first(ProcessGroup& group,
                                                  const std::optional<TrainingProgress>& own);

}  // namespace regroup
