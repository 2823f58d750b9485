// What pooling a group loses, in one number for keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "converter/pooling/solvers/layer_problem.h"

namespace regroup {

/// Expected squared errors of the group's keys and values, each as a part of the expected square
/// of the whole layer, added: keys in attention scores, values in the output. `layer`: of all its
/// heads.
double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer);

/// The same where one head stands for the group: one number for each.
std::vector<double> losses_of_heads(const HeadProblems& problems, const PoolingTask& task,
                                    const HeadEnergies& layer);

/// What `task.method` loses: of kSelect its choice, of kRandom on average.
double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer);

}  // namespace regroup
