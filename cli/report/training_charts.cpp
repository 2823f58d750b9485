#include "cli/report/training_charts.h"

#include <algorithm>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMetricsBytes = 1U << 30;
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kRecipeFile = "run.json";

void add_value(StepValues& values, const Json& line, const char* key) {
  if (const auto value = number_if_any(member_of(line, key))) {  // null: not finite
    values.push_back({line["step"].get<double>(), *value});
  }
}

double number_or_zero(const Json& line, const char* key) {
  return number_if_any(member_of(line, key)).value_or(0.0);
}

void add_line(TrainingCurve& curve, const Json& line) {
  add_value(curve.loss, line, "loss");
  add_value(curve.evaluation, line, "eval_loss");
  add_value(curve.learning_rate, line, "lr");
  add_value(curve.gradient_norm, line, "grad_norm");
  add_value(curve.speed, line, "tokens_per_second");
  curve.skipped += member_of(line, "skipped") == Json(true) ? 1 : 0;
  curve.seconds += number_or_zero(line, "seconds");
  curve.tokens = std::max(curve.tokens, number_or_zero(line, "tokens"));
}

// Names and values, such as "learning rate" and "0.002". Null, an unset setting, is skipped.
Facts read_recipe(const fs::path& file) {
  constexpr std::uint64_t kMaxRecipeBytes = 1U << 20;
  Facts facts;
  const Json run = parse_json_object(read_text(file, kMaxRecipeBytes), printable_path(file));
  const Json& recipe = member_of(run, "recipe");
  if (!recipe.is_object()) {
    throw_bad_input("{}: no \"recipe\"", printable_path(file));
  }
  for (const auto& [key, value] : recipe.items()) {
    if (!value.is_null()) {
      std::string name = key;
      std::ranges::replace(name, '_', ' ');
      facts.emplace_back(
          name, value.is_string() ? value.get<std::string>() : printable_json(value, /*limit=*/0));
    }
  }
  return facts;
}

constexpr std::size_t kMostPoints = 300;  // of a line: about one per unit of its width

Axis steps_axis() { return {.title = "step", .whole = true}; }

// "training" for one run, "first, training" for several; "first" if `what` is empty.
std::string series_name(const NamedCurve& run, const std::string& what, bool several) {
  return !several ? what : what.empty() ? run.name : fmt::format("{}, {}", run.name, what);
}

using Values = StepValues TrainingCurve::*;

// One colour for each run. A few values, such as evaluations before and after a run, are drawn as
// dots: a line would suggest values for steps that were not measured.
void add_series(Chart& chart, const std::vector<NamedCurve>& runs, Values values, const char* what,
                Series::Mark mark = Series::Mark::kLine) {
  constexpr std::size_t kFewest = 3;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const StepValues& measured = runs[i].curve.*values;
    if (!measured.empty()) {
      const bool few = measured.size() < kFewest;
      chart.series.push_back({series_name(runs[i], what, runs.size() > 1),
                              thinned(measured, kMostPoints), few ? Series::Mark::kDots : mark, i});
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

// Whether the loss of training is, or contains, the divergence from a teacher.
bool has_teacher(const NamedCurve& run) {
  return std::ranges::any_of(run.curve.recipe, [](const auto& fact) {
    return fact.first == "teacher weight" &&
           fact.second.find_first_not_of("0.") != fact.second.npos;
  });
}

Chart loss_chart(const std::vector<NamedCurve>& runs) {
  const bool held_out = std::ranges::any_of(
      runs, [](const NamedCurve& run) { return !run.curve.evaluation.empty(); });
  Chart chart{.id = "loss",
              .title = "Loss",
              .description = fmt::format(
                  "Loss of training{}, by step.{}", held_out ? " and on held-out text" : "",
                  std::ranges::any_of(runs, has_teacher)
                      ? " A run with a teacher trains on the divergence from it (KL), with the "
                        "teacher's weight, and on the text's loss with the rest."
                      : ""),
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

// A chart of one number per step, in `unit`.
Chart step_chart(const char* id, const char* title, const char* description, const char* unit,
                 const std::vector<NamedCurve>& runs, Values values) {
  Chart chart{.id = id,
              .title = title,
              .description = description,
              .x = steps_axis(),
              .y = {.title = unit, .low = 0.0},
              .series = {}};
  add_series(chart, runs, values, runs.size() > 1 ? "" : unit);
  return chart;
}

}  // namespace

TrainingCurve read_training_curve(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / kMetricsFile : path;
  const std::string text = read_text(file, kMaxMetricsBytes);
  TrainingCurve curve;
  std::size_t number = 1;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1, ++number) {
    const Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number()) {
      throw_bad_input("{}: line {} is not a JSON object with a number \"step\"",
                      printable_path(file), number);
    }
    add_line(curve, line);
  }
  if (curve.empty()) {
    throw_bad_input("{}: no step has a loss", printable_path(file));
  }
  if (fs::is_directory(path) && path_exists(path / kRecipeFile)) {
    curve.recipe = read_recipe(path / kRecipeFile);
  }
  return curve;
}

std::optional<fs::path> run_directory_of(const fs::path& output) {
  fs::path run = output.has_filename() ? output : output.parent_path();  // removes a final slash
  run += ".run";
  return path_exists(run / kMetricsFile) ? std::optional(run) : std::nullopt;
}

StepValues thinned(const StepValues& values, std::size_t most) {
  const std::size_t per_mean = (values.size() + most - 1) / std::max<std::size_t>(most, 1);
  if (per_mean <= 1) {
    return values;
  }
  StepValues means;
  for (std::size_t begin = 0; begin < values.size(); begin += per_mean) {
    const std::size_t end = std::min(begin + per_mean, values.size());
    ChartPoint mean;
    for (std::size_t i = begin; i < end; ++i) {
      mean.x += values[i].x / static_cast<double>(end - begin);
      mean.y += values[i].y / static_cast<double>(end - begin);
    }
    means.push_back(mean);
  }
  return means;
}

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
