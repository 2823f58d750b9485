// What a conversion did, as text or JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/budget_report.h"
#include "cli/measure/compare_result.h"
#include "cli/terminal/console.h"
#include "converter/execute/execute_plan.h"
#include "converter/grouping/similar_grouping.h"
#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct ConversionReport {
  const ConversionPlan& plan;
  const Model& source;
  std::string source_name;  ///< as it was given
  std::string destination;
  bool dry_run = false;
  bool measured = false;  ///< whether the table of layers was asked for
  std::vector<LayerReport> layers = {};
  std::vector<std::string> warnings = {};         ///< see conversion_warnings()
  std::vector<LayerGrouping> groupings = {};      ///< where heads were grouped by similarity
  std::optional<KvBudget> budget = std::nullopt;  ///< where one was shared
  std::optional<OutputComparison> comparison = std::nullopt;
  double seconds = 0.0;
};

/// Prints the report, as JSON where asked for; notes go to stderr.
void print_report(const ConversionReport& done, bool json, const Console& console);

}  // namespace regroup
