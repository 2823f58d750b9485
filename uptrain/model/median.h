// The median of measured times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace regroup {

/// Requires at least one value. Of an even number of values, the greater of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace regroup
