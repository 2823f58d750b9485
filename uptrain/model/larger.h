// The larger of two numbers, for searching the largest error.
#pragma once

#include <cmath>

namespace regroup {

/// Unlike std::max, this keeps NaN.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace regroup
