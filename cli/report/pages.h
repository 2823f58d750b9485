// The HTML pages of inspect, diff, verify and plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/compare_logits.h"
#include "cli/report/chart.h"
#include "cli/report/conversion_facts.h"
#include "cli/report/model_report.h"
#include "cli/report/page.h"
#include "cli/report/plan_report.h"
#include "cli/report/training_charts.h"
#include "cli/shell/table.h"
#include "converter/convert/verify_conversion.h"
#include "formats/model/model_summary.h"
#include "formats/model/tensor_comparison.h"

namespace regroup {

// Page sections about a model that several pages share.

/// Heads by layer, caches and slopes. Adds nothing if there is nothing to chart.
void add_heads(Page& page, const ModelSummary& summary, const std::vector<LayerSummary>& layers);

/// The provenance recorded in the weights. Adds nothing if none is recorded.
void add_provenance(Page& page, const ModelSummary& summary,
                    const std::optional<RecordedMeasurements>& conversion);

/// The energy that layers kept, and the errors before and after refitting.
void add_conversion(Page& page, const RecordedMeasurements& record);

/// Logarithmic axes of memory in bytes and of tokens.
Axis memory_axis(const std::string& title);
Axis tokens_axis(const std::string& title);

// The HTML page of `regroup inspect`. It also shows the records of conversion and training, if they
// are given.

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

// The HTML page of `regroup diff`.

struct DiffPage {
  std::string before, after;  ///< paths as given on the command line
  const std::vector<TensorDifference>& tensors;
  const std::vector<JsonDifference>& settings;
};

/// A complete HTML document.
std::string diff_page(const DiffPage& facts);

// The HTML page of `regroup verify`.

struct VerifyPage {
  std::string source, result;  ///< paths as given on the command line
  const Verification* found;   ///< null: nothing could be computed again
  std::optional<LogitsResult> logits = std::nullopt;
  /// The result. The page does not show its tensors, statistics and training.
  ModelPage model;
};

/// A complete HTML document.
std::string verify_page(const VerifyPage& facts);

/// A complete HTML document.
std::string plan_page(const ServingPlan& plan);

}  // namespace regroup
