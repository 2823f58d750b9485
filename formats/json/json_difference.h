// Where two JSON documents differ, key by key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// One place: "rope_scaling.factor", "regroup.alibi.slopes[3]".
struct JsonDifference {
  std::string path;
  std::optional<Json> before;  ///< none: there is nothing under that path
  std::optional<Json> after;
};

/// Every place where `after` is not `before`, in the order of `before`, then what is new. Objects
/// are compared member by member, whatever their order; lists of one length element by element;
/// numbers by value. `path` stands before all paths.
std::vector<JsonDifference> differences_between(const Json& before, const Json& after,
                                                const std::string& path = "");

}  // namespace regroup
