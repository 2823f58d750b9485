// What the ranks of a run tell one another besides tensors.
#pragma once

#include <optional>

#include "formats/json/json.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/evaluate/evaluate.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// Throws kUsage on every rank, naming rank and settings, where not all were asked for the same: an
/// object.
void check_same_on_all(ProcessGroup& group, const Json& asked);

/// The mean over the shares that the ranks have evaluated; none where one of them was stopped.
std::optional<Evaluation> evaluation_of_all(const ProcessGroup& group,
                                            const std::optional<Evaluation>& own);

/// What the first rank has.
std::optional<TrainingProgress> progress_of_first(ProcessGroup& group,
                                                  const std::optional<TrainingProgress>& own);

}  // namespace regroup
