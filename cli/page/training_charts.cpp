#include "cli/page/training_charts.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/text.h"

namespace regroup {
namespace {

constexpr std::size_t kMostPoints = 300;  // of a line: about one for each unit of its width

std::vector<ChartPoint> points_of(const std::vector<StepValue>& values) {
  std::vector<ChartPoint> points;
  for (const StepValue& value : thinned(values, kMostPoints)) {
    points.push_back({value.step, value.value});
  }
  return points;
}

Axis steps_axis() {
  return {.title = "step", .whole = true, .text = [](double step) {
            return step >= 0 && step < 1e15 ? with_thousands(static_cast<std::uint64_t>(step + 0.5))
                                            : fmt::format("{:.3g}", step);
          }};
}

// "training" of one run, "first, training" of several.
std::string series_name(const NamedCurve& run, const char* what, bool several) {
  return !several ? what : fmt::format("{}, {}", run.name, what);
}

using Values = std::vector<StepValue> TrainingCurve::*;

void add_series(Chart& chart, const std::vector<NamedCurve>& runs, Values values, const char* what,
                Series::Mark mark = Series::Mark::kLine) {
  for (const NamedCurve& run : runs) {
    if (!(run.curve.*values).empty()) {
      chart.series.push_back(
          {series_name(run, what, runs.size() > 1), points_of(run.curve.*values), mark});
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
              .y = {.title = "nats per token",
                    .text = [](double loss) { return fmt::format("{:.4g}", loss); }},
              .series = {}};
  const std::size_t each = (longest(runs) + kMostPoints - 1) / kMostPoints;
  if (each > 1) {
    chart.description += fmt::format(" Each point of training is the mean of {} steps{}.", each,
                                     runs.size() > 1 ? " or fewer" : "");
  }
  add_series(chart, runs, &TrainingCurve::loss, "training");
  add_series(chart, runs, &TrainingCurve::evaluation, "held-out", Series::Mark::kLineAndDots);
  return chart;
}

// "26,400", "0.0002".
std::string number_text(double number) {
  return number >= 1000 && number < 1e15 ? with_thousands(static_cast<std::uint64_t>(number + 0.5))
                                         : fmt::format("{:.4g}", number);
}

// One number of each step.
Chart step_chart(const char* id, const char* title, const char* description, const char* unit,
                 const std::vector<NamedCurve>& runs, Values values) {
  Chart chart{.id = id,
              .title = title,
              .description = description,
              .x = steps_axis(),
              .y = {.title = unit, .low = 0.0, .text = number_text},
              .series = {}};
  add_series(chart, runs, values, unit);
  return chart;
}

}  // namespace

std::vector<Chart> training_charts(const std::vector<NamedCurve>& runs) {
  std::vector<Chart> charts{loss_chart(runs),
                            step_chart("learning-rate", "Learning rate", "Learning rate by step.",
                                       "learning rate", runs, &TrainingCurve::learning_rate),
                            step_chart("gradient-norm", "Gradient norm",
                                       "Norm of the gradients before clipping, by step.", "norm",
                                       runs, &TrainingCurve::gradient_norm),
                            step_chart("speed", "Speed", "Tokens per second by step.", "tokens/s",
                                       runs, &TrainingCurve::speed)};
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  return charts;
}

}  // namespace regroup
