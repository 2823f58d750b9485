// The shared head from which all heads of a group can be restored with the least error.
#pragma once

#include "converter/pooling/combination.h"

namespace regroup {

/// Minimises Σ_j E|R_j (x_j − back_j x)|² over all mix and back. For free features: with L_j L_jᵀ =
/// R_jᵀ R_j, x holds the f leading principal components of the stacked Lᵀ_j x_j (Eckart and Young
/// 1936), and back_j the regression of x_j on them. In a plane x is the leading principal component
/// of the n complex numbers. Scaled so that x has the mean power of the heads.
FreeSolution solve_lowrank(const FreeProblem& problem);
PlaneSolution solve_lowrank(const PlaneProblem& problem);

/// The energy that those solutions keep, Σ_j E|R_j x_j|² minus the minimum: computed as the sum of
/// the leading eigenvalues, for a fraction of the work.
double energy_kept_by_lowrank(const GroupProblem& problem);

}  // namespace regroup
