// JSON values from strangers inside messages.
#pragma once

#include <cstddef>
#include <string>

#include "formats/json/json.h"

namespace regroup {

/// `value` on one line of printable ASCII, at most `limit` characters (0: all of them). Strings
/// that are not UTF-8, which metadata outside of JSON can hold, have replacement characters in
/// place of what is not. Never throws for what a value holds.
std::string printable_json(const Json& value, std::size_t limit = 100);

}  // namespace regroup
