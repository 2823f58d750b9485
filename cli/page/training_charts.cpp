#include "cli/page/training_charts.h"

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

}  // namespace

Chart loss_chart(const TrainingCurve& curve) {
  Chart chart{.id = "loss",
              .title = "Loss",
              .description = "Loss of training and on held-out text, by step.",
              .x = steps_axis(),
              .y = {.title = "nats per token",
                    .text = [](double loss) { return fmt::format("{:.4g}", loss); }},
              .series = {}};
  const std::size_t each = (curve.loss.size() + kMostPoints - 1) / kMostPoints;
  if (each > 1) {
    chart.description += fmt::format(" Each point of training is the mean of {} steps.", each);
  }
  if (!curve.loss.empty()) {
    chart.series.push_back({"training", points_of(curve.loss), Series::Mark::kLine});
  }
  if (!curve.evaluation.empty()) {
    chart.series.push_back({"held-out", points_of(curve.evaluation), Series::Mark::kLineAndDots});
  }
  return chart;
}

std::vector<Chart> training_charts(const TrainingCurve& curve) {
  std::vector<Chart> charts{loss_chart(curve)};
  if (!curve.learning_rate.empty()) {
    charts.push_back({.id = "learning-rate",
                      .title = "Learning rate",
                      .description = "Learning rate by step.",
                      .x = steps_axis(),
                      .y = {.title = "learning rate", .low = 0.0},
                      .series = {{"learning rate", points_of(curve.learning_rate)}}});
  }
  if (!curve.gradient_norm.empty()) {
    charts.push_back({.id = "gradient-norm",
                      .title = "Gradient norm",
                      .description = "Norm of the gradients before clipping, by step.",
                      .x = steps_axis(),
                      .y = {.title = "norm", .low = 0.0},
                      .series = {{"gradient norm", points_of(curve.gradient_norm)}}});
  }
  return charts;
}

}  // namespace regroup
