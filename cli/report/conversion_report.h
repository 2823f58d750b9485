// The report of a conversion, as text or JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/budget_report.h"
#include "cli/measure/compare_result.h"
#include "cli/measure/text_conversion.h"
#include "cli/terminal/console.h"
#include "converter/execute/execute_plan.h"
#include "converter/grouping/similar_grouping.h"
#include "converter/plan/conversion_plan.h"
#include "formats/json/json.h"
#include "formats/model/model.h"

namespace regroup {

struct ConversionReport {
  const ConversionPlan& plan;
  const Model& source;
  std::string source_name;  ///< as given on the command line
  std::string destination;
  bool dry_run = false;
  bool measured = false;  ///< whether --measure was given, which prints the table of layers
  std::vector<LayerReport> layers = {};
  std::vector<std::string> warnings = {};         ///< see conversion_warnings()
  std::vector<LayerGrouping> groupings = {};      ///< of --grouping similar
  std::optional<KvBudget> budget = std::nullopt;  ///< of --kv-budget
  std::optional<OutputComparison> comparison = std::nullopt;
  Json distillation = nullptr;                           ///< of --text, as recorded; null: none
  std::optional<HeldOutReport> held_out = std::nullopt;  ///< of --text
  double seconds = 0.0;
};

/// Prints the report as text, or as JSON if `json`. Notes and warnings go to stderr.
void print_report(const ConversionReport& done, bool json, const Console& console);

}  // namespace regroup
