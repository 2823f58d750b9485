// What ranges and vectors have of their own from C++23 on: contains() and append_range().
#pragma once

#include <algorithm>
#include <functional>
#include <ranges>

namespace regroup {

/// Whether an element of `range`, or what `projection` takes from it, equals `value`.
template <typename Range, typename Value, typename Projection = std::identity>
bool contains(const Range& range, const Value& value, Projection projection = {}) {
  return std::ranges::find(range, value, projection) != std::ranges::end(range);
}

/// Adds the elements of `range` to a vector.
template <typename Vector, typename Range>
void append(Vector& vector, const Range& range) {
  vector.insert(vector.end(), std::ranges::begin(range), std::ranges::end(range));
}

}  // namespace regroup
