// Where two JSON documents differ, key by key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// One difference. Paths look like "rope_scaling.factor" or "regroup.alibi.slopes[3]".
struct JsonDifference {
  std::string path;
  std::optional<Json> before;  ///< none: the path does not exist
  std::optional<Json> after;
};

/// All differences in the order of `before`, then the additions. Objects are compared member by
/// member in any order, lists of equal length element by element, numbers by value. `path` is
/// prepended to every path.
std::vector<JsonDifference> differences_between(const Json& before, const Json& after,
                                                const std::string& path = "");

}  // namespace regroup
