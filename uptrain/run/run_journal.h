// The metrics and warnings that an uptraining run emits as it goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "uptrain/evaluate/evaluate.h"
#include "uptrain/optim/loss_spike_detector.h"
#include "uptrain/run/uptrain.h"
#include "uptrain/trainer/metrics.h"
#include "uptrain/trainer/trainer.h"

namespace regroup {

class RunJournal {
 public:
  /// Writes no metrics until open(). Keeps a reference to `observer`.
  explicit RunJournal(UptrainObserver& observer) : observer_(observer) {}

  /// See MetricsLog. Only the first rank writes metrics.
  void open(const std::filesystem::path& metrics, std::int64_t last_step) {
    metrics_.emplace(metrics, last_step);
  }

  /// Appends the metrics of a step. Warns if it was skipped, or if its loss is a spike.
  void record_step(const StepReport& report);
  void record_evaluation(std::int64_t step, const Evaluation& evaluation);

  /// See LossSpikeDetector.
  double mean_loss() const { return losses_.mean(); }

 private:
  void append(const Json& line);

  UptrainObserver& observer_;
  std::optional<MetricsLog> metrics_;
  LossSpikeDetector losses_;
};

}  // namespace regroup
