// Suggests a known name for a misspelt one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// The number of letters to add, remove, replace or swap with a neighbour to turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name nearest to `typed`. Empty if for all names more than a third of the letters differ and
/// none begins with `typed`.
std::string nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace regroup
