// Formats untrusted JSON values for messages.
#pragma once

#include <cstddef>
#include <string>

#include "formats/json/json.h"

namespace regroup {

/// `value` on one line of printable ASCII, at most `limit` characters (0: no limit). Invalid UTF-8,
/// which non-JSON metadata can contain, becomes replacement characters. Never throws because of the
/// value's contents.
std::string printable_json(const Json& value, std::size_t limit = 100);

}  // namespace regroup
