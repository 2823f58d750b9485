// The metrics of an uptraining run, read from its directory or metrics.jsonl.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace regroup {

/// Something measured at a step.
struct StepValue {
  double step = 0.0;
  double value = 0.0;
};

struct TrainingCurve {
  std::vector<StepValue> loss;        ///< of training, nats per token
  std::vector<StepValue> evaluation;  ///< loss on held-out text
  std::vector<StepValue> learning_rate;
  std::vector<StepValue> gradient_norm;
  std::vector<StepValue> speed;  ///< tokens per second
  std::size_t skipped = 0;  ///< steps that changed nothing: their loss or gradients were not finite
  double seconds = 0.0;     ///< spent in steps
  double tokens = 0.0;      ///< trained on

  std::vector<std::pair<std::string, std::string>> recipe;  ///< what the run was asked for, as text

  bool empty() const { return loss.empty() && evaluation.empty(); }
};

/// `path` is a run's directory (OUTPUT.run), whose run.json has the recipe, or a metrics.jsonl. A
/// last line that was cut off is left out. Throws kBadInput naming the line that is no JSON object
/// with a "step".
TrainingCurve read_training_curve(const std::filesystem::path& path);

/// OUTPUT.run, where there is one with metrics.
std::optional<std::filesystem::path> run_beside(const std::filesystem::path& output);

/// At most `most` values: each the mean of as many neighbours.
std::vector<StepValue> thinned(const std::vector<StepValue>& values, std::size_t most);

}  // namespace regroup
