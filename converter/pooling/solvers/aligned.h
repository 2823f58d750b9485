// The mean of heads after rotation into a common basis.
#pragma once

#include "converter/pooling/solvers/combination.h"

namespace regroup {

/// Generalised Procrustes analysis (Gower 1975): rotations of the heads that maximise the power of
/// their mean; in a plane one angle per head. The mean is then scaled to the mean power of the
/// heads, and the readers of a head rotate back.
FreeSolution solve_aligned(const FreeProblem& problem);
PlaneSolution solve_aligned(const PlaneProblem& problem);

}  // namespace regroup
