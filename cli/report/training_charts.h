// Curves of a training run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/chart.h"
#include "cli/shell/text.h"

namespace regroup {

/// What was measured at steps: x is the step.
using StepValues = std::vector<ChartPoint>;

struct TrainingCurve {
  StepValues loss;        ///< of training, nats per token
  StepValues evaluation;  ///< loss on held-out text
  StepValues learning_rate;
  StepValues gradient_norm;
  StepValues speed;         ///< tokens per second
  std::size_t skipped = 0;  ///< steps without an update: their loss or gradients were not finite
  double seconds = 0.0;     ///< spent in steps
  double tokens = 0.0;      ///< trained on

  Facts recipe;  ///< the run's settings

  bool empty() const { return loss.empty() && evaluation.empty(); }
};

/// Reads a run's directory (OUTPUT.run), whose run.json has the recipe, or a metrics.jsonl. An
/// incomplete last line is skipped. Throws kBadInput naming a line that is not a JSON object with a
/// "step", or if there is no loss at all.
TrainingCurve read_training_curve(const std::filesystem::path& path);

/// The directory OUTPUT.run, if it exists and has metrics.
std::optional<std::filesystem::path> run_directory_of(const std::filesystem::path& output);

/// Reduces `values` to at most `most` values: means of equally many neighbours (the last may be of
/// fewer).
StepValues thinned(const StepValues& values, std::size_t most);

/// A run, and its name in charts of several runs.
struct NamedCurve {
  std::string name;
  TrainingCurve curve;
};

/// Charts by step with all runs: loss (training and held-out), learning rate, gradient norm and
/// tokens per second. Their ids are "loss", "learning-rate", "gradient-norm" and "speed". A chart
/// for which no run has values is left out.
std::vector<Chart> training_charts(const std::vector<NamedCurve>& runs);

}  // namespace regroup
