// A model's record in words.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/record/conversion_record.h"

namespace regroup {

/// Names and values of all facts in the record, in the order to print them: kv heads, pooling,
/// grouping, calibration, refit and so on, then recorded_measurements(). `architecture`: the
/// model's. Empty if nothing is recorded. Malformed entries are shown as "?" or "none".
std::vector<std::pair<std::string, std::string>> conversion_facts(const ConversionRecord& record,
                                                                  std::string_view architecture);

/// The conversion in one or two lines; empty if none is recorded.
std::string conversion_text(const ConversionRecord& record);

/// What conversion_text() leaves out: measurements of layers and losses, training, each earlier
/// step, and facts under keys that are not known.
std::vector<std::pair<std::string, std::string>> recorded_measurements(
    const ConversionRecord& record);

}  // namespace regroup
