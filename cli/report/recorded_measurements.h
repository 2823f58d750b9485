// Reads the measurements of a conversion, from `regroup convert --json` or from its result.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// The measurements of a layer. Shares, where 1 is all; none if not measured.
struct RecordedLayer {
  std::string attention;  ///< its role, as in the report
  double layer = 0.0;
  std::optional<double> key_energy, value_energy;         ///< kept
  std::optional<double> error_before, error_after_refit;  ///< of the attention's output
};

struct RecordedMeasurements {
  std::string source, pool, grouping;
  std::vector<RecordedLayer> layers;
};

/// Reads the output of `regroup convert --json`. Throws kBadInput if the file is something else.
RecordedMeasurements read_measurements(const std::filesystem::path& path);

/// Reads the "regroup" block of `config`, the config at `path`; none if nothing was measured.
/// Throws kBadInput if its list of layers is malformed.
std::optional<RecordedMeasurements> measurements_in(const Json& config,
                                                    const std::filesystem::path& path);

}  // namespace regroup
