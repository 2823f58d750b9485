// A whole uptraining run: from a model directory and token files to a trained model directory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "uptrain/data/data_loader.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/evaluate/evaluate.h"
#include "uptrain/model/language_model.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/trainer/trainer.h"

namespace regroup {

/// Hears of what happens in a run; every call may be left alone.
class UptrainObserver {
 public:
  virtual ~UptrainObserver() = default;
  virtual void on_start(const TrainingProgress&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(std::int64_t /*step*/, const Evaluation&) {}
  virtual void on_saved(const std::filesystem::path& /*run directory*/, std::int64_t /*step*/) {}
  virtual void on_warning(const std::string&) {}
};

struct UptrainResult {
  TrainingProgress progress;
  double last_loss = 0.0;            ///< mean over the last (at most 20) steps of this process
  std::optional<Evaluation> before;  ///< where there is evaluation data, and the run began here
  std::optional<Evaluation> after;
};

/// Carries out `plan`: trains, evaluates, keeps OUT.run (see RunDirectory) and at last publishes
/// the settings' output. With `resume` it goes on from the newest state of an earlier run, to the
/// same result, bit by bit on the CPU. Soon after `stop` turns true it saves the state and throws
/// kInterruptedSaved. Whatever happens, the output is there whole or not at all.
///
/// Of several `ranks` each calls this with the same plan, and all of them stop when one is to; the
/// first alone writes. A state can be resumed by another number of ranks. Throws kUsage where they
/// were asked for different things, kEnvironment where one of them is lost.
UptrainResult run_uptraining(const UptrainPlan& plan, const Model& source, const DataLoader& data,
                             bool resume, UptrainObserver& observer, const std::atomic<bool>& stop,
                             ProcessGroup* group = nullptr);

}  // namespace regroup
