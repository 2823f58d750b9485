#include "cli/pages/training_charts.h"

#include <algorithm>

#include <fmt/format.h>

namespace regroup {
namespace {

constexpr std::size_t kMostPoints = 300;  // of a line: about one per unit of its width

std::vector<ChartPoint> points_of(const std::vector<StepValue>& values) {
  std::vector<ChartPoint> points;
  for (const StepValue& value : thinned(values, kMostPoints)) {
    points.push_back({value.step, value.value});
  }
  return points;
}

Axis steps_axis() { return {.title = "step", .whole = true}; }

// "training" for one run, "first, training" for several; "first" if `what` is empty.
std::string series_name(const NamedCurve& run, const std::string& what, bool several) {
  return !several ? what : what.empty() ? run.name : fmt::format("{}, {}", run.name, what);
}

using Values = std::vector<StepValue> TrainingCurve::*;

// One colour for each run. A few values, such as evaluations before and after a run, are drawn as
// dots: a line would suggest values for steps that were not measured.
void add_series(Chart& chart, const std::vector<NamedCurve>& runs, Values values, const char* what,
                Series::Mark mark = Series::Mark::kLine) {
  constexpr std::size_t kFewest = 3;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<StepValue>& measured = runs[i].curve.*values;
    if (!measured.empty()) {
      const bool few = measured.size() < kFewest;
      chart.series.push_back({series_name(runs[i], what, runs.size() > 1), points_of(measured),
                              few ? Series::Mark::kDots : mark, i});
    }
  }
}

std::size_t longest(const std::vector<NamedCurve>& runs) {
  std::size_t steps = 0;
  for (const NamedCurve& run : runs) {
    steps = std::max(steps, run.curve.loss.size());
  }
  return steps;
}

Chart loss_chart(const std::vector<NamedCurve>& runs) {
  Chart chart{.id = "loss",
              .title = "Loss",
              .description = "Loss of training and on held-out text, by step.",
              .x = steps_axis(),
              .y = {.title = "nats per token"},
              .series = {}};
  const std::size_t each = (longest(runs) + kMostPoints - 1) / kMostPoints;
  if (each > 1) {
    chart.description += fmt::format(" Each point of training is the mean of {} steps{}.", each,
                                     runs.size() > 1 ? " or fewer" : "");
  }
  add_series(chart, runs, &TrainingCurve::loss, "training", Series::Mark::kFaintLine);
  add_series(chart, runs, &TrainingCurve::evaluation, "held-out", Series::Mark::kLineAndDots);
  return chart;
}

// Adds the curves to a chart of one number per step, without series so far.
Chart step_chart(Chart chart, const std::vector<NamedCurve>& runs, Values values) {
  const std::string unit = chart.y.title;
  add_series(chart, runs, values, runs.size() > 1 ? "" : unit.c_str());
  return chart;
}

}  // namespace

std::vector<Chart> training_charts(const std::vector<NamedCurve>& runs) {
  std::vector<Chart> charts{
      loss_chart(runs),
      step_chart({.id = "learning-rate",
                  .title = "Learning rate",
                  .description = "Learning rate by step.",
                  .x = steps_axis(),
                  .y = {.title = "learning rate", .low = 0.0},
                  .series = {}},
                 runs, &TrainingCurve::learning_rate),
      step_chart({.id = "gradient-norm",
                  .title = "Gradient norm",
                  .description = "Norm of the gradients before clipping, by step.",
                  .x = steps_axis(),
                  .y = {.title = "norm", .low = 0.0},
                  .series = {}},
                 runs, &TrainingCurve::gradient_norm),
      step_chart({.id = "speed",
                  .title = "Speed",
                  .description = "Tokens per second by step.",
                  .x = steps_axis(),
                  .y = {.title = "tokens/s", .low = 0.0},
                  .series = {}},
                 runs, &TrainingCurve::speed)};
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  return charts;
}

}  // namespace regroup
