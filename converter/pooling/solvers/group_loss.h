// The loss of pooling a group, as one number for keys and values.
#pragma once

#include "converter/pooling/solvers/layer_problem.h"

namespace regroup {

/// The sum of the expected squared errors of the group's keys (in attention scores) and values (in
/// the output), each relative to the expected square of the whole layer. `layer`: of all its heads.
double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer);

/// The loss of `task.method`: for kRandom the average of all heads.
double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer);

}  // namespace regroup
