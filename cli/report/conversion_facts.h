// The conversion that is recorded in a result, in words.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace regroup {

/// Names and values of the facts in `record` (ModelSummary::provenance), in the order to print
/// them: kv heads, pooling, grouping, calibration, refit and so on. Empty if no conversion is
/// recorded. Malformed entries are shown as "?" or "none".
std::vector<std::pair<std::string, std::string>> conversion_facts(
    const std::map<std::string, std::string>& record);

/// A summary in one or two lines; empty if no conversion is recorded.
std::string conversion_text(const std::map<std::string, std::string>& record);

}  // namespace regroup
