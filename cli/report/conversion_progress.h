// The progress bar of a conversion, in units of what takes the time: steps of refitting, layers
// that are solved, or else bytes.
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
  /// Listens to the plan's refiner, if there is one. Keeps references to both.
  ConversionProgressBar(const Console& console, const ConversionPlan& plan);
  ConversionProgressBar(const ConversionProgressBar&) = delete;
  ConversionProgressBar& operator=(const ConversionProgressBar&) = delete;
  ~ConversionProgressBar();

  /// As a ConversionProgress.
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
  std::map<std::string, Place, std::less<>> solved_;  // tensors that a solved layer gives
  Unit unit_;
  Progress progress_;
  std::set<Place> layers_;  // that are done, or being refitted
};

}  // namespace regroup
