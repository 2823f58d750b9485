#include "cli/report/conversion_progress.h"

#include <algorithm>

#include <fmt/format.h>

#include "converter/execute/execute_plan.h"
#include "formats/base/printable.h"

namespace regroup {

std::map<std::string, ConversionProgressBar::Place, std::less<>>
ConversionProgressBar::solved_tensors(const ConversionPlan& plan) {
  std::map<std::string, Place, std::less<>> solved;
  for (const TensorStep& step : plan.steps) {
    for (const HeadMove& move : step.moves) {
      if (move.pooled) {
        solved.emplace(step.output.name, Place{move.pooled->role, move.pooled->layer});
      }
    }
  }
  return solved;
}

ConversionProgressBar::Unit ConversionProgressBar::unit_of(const ConversionPlan& plan,
                                                           bool solves) {
  return plan.refiner ? Unit::kRefitSteps : solves ? Unit::kSolvedLayers : Unit::kBytes;
}

Progress ConversionProgressBar::progress_of(const Console& console, const ConversionPlan& plan,
                                            Unit unit) {
  const std::uint64_t layers = pooled_layers(plan).size();
  switch (unit) {
    case Unit::kRefitSteps:
      return {console, "refit", layers * static_cast<std::uint64_t>(plan.refiner->steps()),
              "steps"};
    case Unit::kSolvedLayers: return {console, "convert", layers, "layers"};
    case Unit::kBytes: break;
  }
  return {console, "convert", plan.output_bytes, "bytes"};
}

ConversionProgressBar::ConversionProgressBar(const Console& console, const ConversionPlan& plan)
    : plan_(plan),
      solved_(solved_tensors(plan)),
      unit_(unit_of(plan, !solved_.empty())),
      progress_(progress_of(console, plan, unit_)) {
  if (plan.refiner) {
    plan.refiner->report_to([this](const RefinementStep& step) { refined(step); });
  }
}

ConversionProgressBar::~ConversionProgressBar() {
  if (plan_.refiner) {
    plan_.refiner->report_to({});
  }
}

void ConversionProgressBar::wrote(std::uint64_t bytes, std::string_view tensor) {
  if (unit_ == Unit::kBytes) {
    progress_.update(bytes, printable(tensor, 60));
  } else if (const auto found = solved_.find(tensor);
             unit_ == Unit::kSolvedLayers && found != solved_.end()) {
    layers_.insert(found->second);
    progress_.update(layers_.size());
  }
}

void ConversionProgressBar::refined(const RefinementStep& step) {
  layers_.insert({step.role, step.layer});
  const std::int64_t each = plan_.refiner->steps();
  const auto before = static_cast<std::int64_t>(layers_.size() - 1) * each;
  progress_.update(
      static_cast<std::uint64_t>(before + step.step),
      fmt::format("{}layer {}/{}, step {}/{}, error {:.3g} %",
                  plan_.spec.has_encoder() ? fmt::format("{} ", name_of(step.role)) : "",
                  step.layer + 1, plan_.spec.stack(step.role).size(), step.step, each,
                  100 * step.error));
}

}  // namespace regroup
