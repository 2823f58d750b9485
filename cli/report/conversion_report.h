// What a conversion reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/compare_logits.h"
#include "cli/measure/conversion_options.h"
#include "cli/measure/kv_budget.h"
#include "cli/shell/console.h"
#include "cli/shell/table.h"
#include "converter/convert/conversion_plan.h"
#include "converter/convert/execute_plan.h"
#include "converter/convert/similar_grouping.h"
#include "formats/base/json.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model.h"

namespace regroup {

struct ConversionReport {
  const ConvertOptions& options;  ///< with the request that was planned
  const ConversionPlan& plan;
  const Model& source;
  std::vector<LayerReport> layers = {};
  std::vector<std::string> warnings = {};         ///< see conversion_warnings()
  std::vector<LayerGrouping> groupings = {};      ///< of --grouping similar
  std::optional<KvBudget> budget = std::nullopt;  ///< of --kv-budget
  std::optional<OutputComparison> comparison = std::nullopt;
  std::optional<DistillOutcome> distillation = std::nullopt;  ///< of --text
  std::optional<HeldOut> held_out = std::nullopt;             ///< of --text
  double seconds = 0.0;
};

/// Prints the report as text, or as JSON with --json. Notes and warnings go to stderr.
void print_report(const ConversionReport& done, const Console& console);

/// A row for each model that was compared on held-out text.
Table held_out_rows(const HeldOut& report);

/// A row for each layer that was measured over a text: means over its groups.
Table layers_table(const std::vector<LayerReport>& layers);

/// The share of energy that similar heads and contiguous groups keep in each layer.
Json groupings_json(const std::vector<LayerGrouping>& groupings);

/// Their means over all layers. Empty without groupings.
std::string grouping_text(const std::vector<LayerGrouping>& groupings);

/// A line for each warning about the quality of the result, with the options that give a better
/// one, and about runtimes that misread it. Reads the plan and what was measured.
std::vector<std::string> conversion_warnings(const ConversionReport& done);

}  // namespace regroup
