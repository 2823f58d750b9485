// The HTML page of `regroup inspect`. It also shows the records of conversion and training, if they
// are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/pages/training_curve.h"
#include "cli/report/model_report.h"
#include "cli/report/recorded_measurements.h"
#include "cli/terminal/table.h"
#include "formats/inspect/layer_summary.h"

namespace regroup {

struct ModelPage {
  const ModelSummary& summary;
  CacheLoad load = {};
  std::vector<LayerSummary> layers = {};  ///< empty without a config
  std::optional<Table> tensors = std::nullopt;
  std::optional<Table> statistics = std::nullopt;
  std::optional<RecordedMeasurements> conversion = std::nullopt;
  std::optional<TrainingCurve> training = std::nullopt;
};

/// A complete HTML document.
std::string model_page(const ModelPage& facts);

}  // namespace regroup
