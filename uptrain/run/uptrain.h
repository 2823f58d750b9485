// A whole uptraining run: from a model directory and token files to a trained model directory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "formats/base/json.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/language_model.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/trainer.h"

namespace regroup {

/// Observes a run; overriding any function is optional.
class UptrainObserver {
 public:
  virtual ~UptrainObserver() = default;
  virtual void on_start(const TrainingProgress&) {}
  virtual void on_step(const StepReport&) {}
  /// A line of metrics.jsonl, when it is in the file.
  virtual void on_metrics(const Json& /*line*/) {}
  /// During an evaluation, of the windows of this process.
  virtual void on_evaluating(std::int64_t /*step*/, std::int64_t /*done*/, std::int64_t /*all*/) {}
  virtual void on_evaluation(std::int64_t /*step*/, const Evaluation&) {}
  virtual void on_saved(const std::filesystem::path& /*run directory*/, std::int64_t /*step*/) {}
  virtual void on_warning(const std::string&) {}
};

struct UptrainResult {
  TrainingProgress progress;
  double last_loss = 0.0;            ///< mean over the last (at most 20) steps of this process
  std::optional<Evaluation> before;  ///< with evaluation data, if the run was not resumed
  std::optional<Evaluation> after;
};

/// Carries out `plan`: trains, evaluates, maintains OUT.run (see RunDirectory) and finally
/// publishes the output. With `resume` it continues from the newest state of an earlier run, with
/// the same result, bitwise on the CPU. Soon after `stop` turns true it saves the state and throws
/// kInterruptedSaved. The output appears only when it is complete.
///
/// With a process group, every rank calls this with the same plan. All ranks stop if `stop` is true
/// on one of them. Only the first rank writes. A state can be resumed with another number of ranks.
/// Throws kUsage if the ranks got different settings, kEnvironment if one of them is lost.
UptrainResult run_uptraining(const UptrainPlan& plan, const Model& source, const DataLoader& data,
                             bool resume, UptrainObserver& observer, const std::atomic<bool>& stop,
                             ProcessGroup* group = nullptr);

}  // namespace regroup
