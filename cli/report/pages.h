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

/// Logarithmic axes of memory in bytes and of tokens.
Axis memory_axis(const std::string& title);
Axis tokens_axis(const std::string& title);

/// What a page shows of a model.
struct ModelPage {
  const ModelSummary& summary;
  CacheLoad load = {};
  std::vector<LayerSummary> layers = {};  ///< empty without a config
  std::optional<Table> tensors = std::nullopt;
  std::optional<Table> statistics = std::nullopt;
  std::optional<RecordedMeasurements> conversion = std::nullopt;
  std::optional<TrainingCurve> training = std::nullopt;
};

/// Adds heads by layer, caches and slopes, the record of the weights and what their conversion
/// measured; nothing of what is not known.
void add_model(Page& page, const ModelPage& facts);

// Complete HTML documents. Paths are as given on the command line.

/// Of `regroup inspect`: with the records of conversion and training, if they are given.
std::string model_page(const ModelPage& facts);

/// Of `regroup diff`.
std::string diff_page(const std::string& before, const std::string& after,
                      const std::vector<TensorDifference>& tensors,
                      const std::vector<JsonDifference>& settings);

struct VerifyPage {
  std::string source, result;
  const Verification* found;  ///< null: nothing could be computed again
  std::optional<LogitsResult> logits = std::nullopt;
  /// The result. The page does not show its tensors, statistics and training.
  ModelPage model;
};

/// Of `regroup verify`.
std::string verify_page(const VerifyPage& facts);

/// Of `regroup plan`.
std::string plan_page(const ServingPlan& plan);

}  // namespace regroup
