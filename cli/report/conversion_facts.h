// A conversion as it is recorded: facts in words, and measurements.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/text.h"
#include "formats/base/json.h"
#include "formats/model/conversion_record.h"

namespace regroup {

struct RecordedMeasurements {
  std::string source;  ///< empty in a record
  std::vector<RecordedLayer> layers;
};

/// Reads the output of `regroup convert --json`. Throws kBadInput if the file is something else.
RecordedMeasurements read_measurements(const std::filesystem::path& path);

/// Reads the "regroup" block of `config`, the config at `path`; none if nothing was measured.
/// Throws kBadInput if its list of layers is malformed.
std::optional<RecordedMeasurements> measurements_in(const Json& config,
                                                    const std::filesystem::path& path);

/// Names and values of all facts in the record, in the order to print them: kv heads, pooling,
/// grouping, calibration, refit and so on, then recorded_measurements(). `architecture`: the
/// model's. Empty if nothing is recorded. Malformed entries are shown as "?" or "none".
Facts conversion_facts(const ConversionRecord& record, std::string_view architecture);

/// The conversion in one or two lines; empty if none is recorded.
std::string conversion_text(const ConversionRecord& record);

/// The mean share of energy kept, and the layer that keeps least (keys and values have equal
/// weight). Empty if nothing was measured over a text.
std::string text_of_kept(const std::vector<RecordedLayer>& layers);

/// The mean error of attention outputs before and after refitting, and the layer with the largest
/// after it. Empty if no layer was refitted.
std::string text_of_refitted(const std::vector<RecordedLayer>& layers);

/// What conversion_text() leaves out: measurements of layers and losses, training, each earlier
/// step, and facts under keys that are not known.
Facts recorded_measurements(const ConversionRecord& record);

}  // namespace regroup
