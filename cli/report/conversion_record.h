// What was said of a conversion, by `regroup convert --json` or in its result, to be shown with it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// Shares from 0 to 1; none where they were not measured.
struct RecordedLayer {
  std::string attention;  ///< its role, as it stands in the report
  double layer = 0.0;
  std::optional<double> key_energy, value_energy;         ///< kept
  std::optional<double> error_before, error_after_refit;  ///< of the attention's output
};

struct ConversionRecord {
  std::string source, pool, grouping;
  std::vector<RecordedLayer> layers;
};

/// Reads such a report. Throws kBadInput where the file is none.
ConversionRecord read_conversion_record(const std::filesystem::path& path);

/// Of the "regroup" block of the config at `path`; none where nothing was measured. Throws
/// kBadInput where that is no such record.
std::optional<ConversionRecord> conversion_recorded_in(const Json& config,
                                                       const std::filesystem::path& path);

}  // namespace regroup
