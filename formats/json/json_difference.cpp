#include "formats/json/json_difference.h"

#include <fmt/format.h>

namespace regroup {
namespace {

void add_all(std::vector<JsonDifference>& found, std::vector<JsonDifference> more) {
  for (JsonDifference& difference : more) {
    found.push_back(std::move(difference));
  }
}

std::vector<JsonDifference> differences_of_objects(const Json& before, const Json& after,
                                                   const std::string& path) {
  const auto path_of = [&](const std::string& key) {
    return path.empty() ? key : fmt::format("{}.{}", path, key);
  };
  std::vector<JsonDifference> found;
  for (const auto& [key, value] : before.items()) {
    const auto other = after.find(key);
    if (other == after.end()) {
      found.push_back({path_of(key), value, std::nullopt});
    } else {
      add_all(found, differences_between(value, *other, path_of(key)));
    }
  }
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) {
      found.push_back({path_of(key), std::nullopt, value});
    }
  }
  return found;
}

}  // namespace

std::vector<JsonDifference> differences_between(const Json& before, const Json& after,
                                                const std::string& path) {
  if (before.is_object() && after.is_object()) {
    return differences_of_objects(before, after, path);
  }
  std::vector<JsonDifference> found;
  if (before.is_array() && after.is_array() && before.size() == after.size()) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      add_all(found, differences_between(before[i], after[i], fmt::format("{}[{}]", path, i)));
    }
  } else if (before != after) {
    found.push_back({path, before, after});
  }
  return found;
}

}  // namespace regroup
