// What `regroup convert --json` said of a conversion, read again to be shown with its result.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

/// Throws kBadInput where the file is no such report.
ConversionRecord read_conversion_record(const std::filesystem::path& path);

}  // namespace regroup
