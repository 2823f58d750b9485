// The loss of pooling a group, as one number for keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "converter/pooling/solvers/layer_problem.h"

namespace regroup {

/// The sum of the expected squared errors of the group's keys (in attention scores) and values (in
/// the output), each relative to the expected square of the whole layer. `layer`: of all its heads.
double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer);

/// The same if one head replaces the group: one number for each head.
std::vector<double> losses_of_heads(const HeadProblems& problems, const PoolingTask& task,
                                    const HeadEnergies& layer);

/// The loss of `task.method`: for kSelect of its choice, for kRandom the average.
double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer);

}  // namespace regroup
