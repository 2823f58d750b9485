// What ranks exchange besides tensors.
#pragma once

#include <optional>

#include "formats/json/json.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/evaluate/evaluate.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// Throws kUsage on every rank, naming rank and settings, unless `asked`, a JSON object, is equal
/// on all.
void check_same_on_all(ProcessGroup& group, const Json& asked);

/// The mean over the shares that the ranks have evaluated; none if one of them was stopped.
std::optional<Evaluation> evaluation_of_all(const ProcessGroup& group,
                                            const std::optional<Evaluation>& own);

/// The progress of the first rank.
std::optional<TrainingProgress> progress_of_first(ProcessGroup& group,
                                                  const std::optional<TrainingProgress>& own);

}  // namespace regroup
