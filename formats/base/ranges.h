// std::ranges::contains() of C++23.
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

}  // namespace regroup
