// The name that was meant by one that there is not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// How many letters must be added, removed, replaced or swapped with their neighbours to make one
/// word of the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name nearest to `typed`; empty where none is near: more than a third of the letters differ,
/// and none begins with it.
std::string nearest_name(std::string_view typed, const std::vector<std::string>& names);

}  // namespace regroup
