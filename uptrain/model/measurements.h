// The median and the maximum of measured numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace regroup {

/// Requires at least one value. Of an even number of values, the greater of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The larger of two numbers. Unlike std::max, this keeps NaN.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace regroup
