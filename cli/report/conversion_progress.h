// The progress bar of a conversion. Its unit is what takes most of the time: steps of refitting,
// layers whose pooling is solved, or bytes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cli/terminal/console.h"
#include "cli/terminal/progress.h"
#include "converter/plan/conversion_plan.h"

namespace regroup {

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

}  // namespace regroup
