// What a result records of its conversion, in words.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace regroup {

/// Names and values of what the record tells: kv heads, pooling, grouping, calibration, refit and
/// so on, in the order to say it; empty where nothing is recorded. `record` is
/// ModelSummary::provenance. What it does not tell in the form that regroup writes is left out.
std::vector<std::pair<std::string, std::string>> conversion_facts(
    const std::map<std::string, std::string>& record);

/// The same in two lines; empty where nothing is recorded.
std::string conversion_text(const std::map<std::string, std::string>& record);

}  // namespace regroup
