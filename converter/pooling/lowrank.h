// The shared head from which the others can be restored with the least error.
#pragma once

#include "converter/pooling/combination.h"

namespace regroup {

/// Minimises Σ_j E|R_j (x_j − back_j x)|² over all mix and back that the basis allows. Of free
/// features: with L_j L_jᵀ = R_jᵀ R_j, x holds the d leading principal components of the stacked
/// Lᵀ_j x_j (Eckart and Young 1936), and back_j the regression of x_j on them. In a plane a head is
/// one complex number, and x the leading principal component of the n of them. Scaled so that x has
/// the mean power of the heads.
Combination solve_lowrank(const GroupProblem& problem);

}  // namespace regroup
