// A conversion as it goes, and what it reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/measure/compare_logits.h"
#include "cli/measure/kv_budget.h"
#include "cli/measure/text_conversion.h"
#include "cli/shell/console.h"
#include "cli/shell/progress.h"
#include "converter/convert/conversion_plan.h"
#include "converter/convert/execute_plan.h"
#include "converter/convert/similar_grouping.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

// The progress bar of a conversion. Its unit is what takes most of the time: steps of refitting,
// layers whose pooling is solved, or bytes.

class ConversionProgressBar {
 public:
  /// Registers with the plan's refiner, if there is one. Keeps references to both arguments.
  ConversionProgressBar(const Console& console, const ConversionPlan& plan);
  ConversionProgressBar(const ConversionProgressBar&) = delete;
  ConversionProgressBar& operator=(const ConversionProgressBar&) = delete;
  ~ConversionProgressBar();

  /// For use as a ConversionProgress.
  void wrote(std::uint64_t bytes, std::string_view tensor);
  void finish() { progress_.finish(); }

 private:
  using Place = std::pair<AttentionRole, std::size_t>;
  enum class Unit { kRefitSteps, kSolvedLayers, kBytes };

  static std::map<std::string, Place, std::less<>> solved_tensors(const ConversionPlan& plan);
  static Unit unit_of(const ConversionPlan& plan, bool solves);
  static Progress progress_of(const Console& console, const ConversionPlan& plan, Unit unit);
  void refined(const RefinementStep& step);

  const ConversionPlan& plan_;
  std::map<std::string, Place, std::less<>> solved_;  // tensors of solved layers
  Unit unit_;
  Progress progress_;
  std::set<Place> layers_;  // done or in progress
};

// The report of a conversion, as text or JSON.

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
  std::optional<DistillOutcome> distillation = std::nullopt;  ///< of --text
  std::optional<HeldOut> held_out = std::nullopt;             ///< of --text
  double seconds = 0.0;
};

/// Prints the report as text, or as JSON if `json`. Notes and warnings go to stderr.
void print_report(const ConversionReport& done, bool json, const Console& console);

}  // namespace regroup
