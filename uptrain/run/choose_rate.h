// Chooses the learning rate of a run by short trials, if it is not given.
#pragma once

#include <atomic>
#include <functional>

#include "formats/model/model.h"
#include "uptrain/data/data_loader.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

/// The trial with the rate that was chosen. Losses are means over text on which no trial trains.
struct RateChoice {
  double rate = 0.0;
  double before = 0.0;  ///< the loss of the model that the run starts from
  double after = 0.0;   ///< after the trial
};

/// Called after each trial, unless it is empty.
using RateProgress = std::function<void(double rate, double loss)>;

/// Trains the model with several learning rates for plan.rate_trials->steps steps, each time from
/// its own weights, with the run's data, loss and optimizer and a cosine schedule. Judges them by
/// the loss on the samples that follow, and sets the best rate in `plan`. Searches as RateSearch
/// does, from 2e-4 on, between 2e-3 and 2e-6. A plan without trials stays as it is, and the result
/// is empty. With a process group, every rank calls this with the same plan. Throws kInterrupted
/// soon after `stop` turns true on one rank.
std::optional<RateChoice> choose_rate(UptrainPlan& plan, const Model& source,
                                      const DataLoader& data, const RateProgress& after_trial,
                                      const std::atomic<bool>& stop, ProcessGroup* group = nullptr);

}  // namespace regroup
