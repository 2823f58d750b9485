// Distilling, and the choice of the learning rate.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/model/model.h"
#include "formats/vocabulary/vocabulary.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/run/memory_choice.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/trainer.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

// Chooses the learning rate of a run by short trials, if it is not given.

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

// Distillation of a conversion's result: its pooled attentions are trained together, so that the
// whole model predicts what its source predicts. Refitting, which goes before, trains each
// attention by itself.

/// Where a run that is stopped, or killed after its first ten minutes, is kept: in the RunDirectory
/// of `output`. Trials of rates are not kept.
struct DistillStates {
  std::filesystem::path output;
  Json recipe;                               ///< an object; equal where the run is resumed
  std::vector<std::filesystem::path> files;  ///< copied into that directory
  bool resume = false;
  std::function<void(const std::string&)> warn;  ///< of states that could not be used or saved
};

struct DistillSettings {
  /// Set are `data` to learn from, `eval_data` that judges, sequence length, batch, steps and
  /// device; distill() sets the rest.
  UptrainSettings run;
  /// The peak, relative to the median over the trained tensors of their values' root mean square.
  /// None: 0.006 in runs shorter than 128 steps, otherwise by trials of a twentieth of the steps,
  /// from 0.006 on in factors of about three: the largest that leaves at most 1.5 times what the
  /// best leaves.
  std::optional<double> relative_rate;
  /// Of the error of attention outputs, see AttentionDistillation. None: 1 for models that cannot
  /// predict, otherwise 0.
  std::optional<double> attention_weight;
  /// Of each window, for encoders. These read inputs of all lengths: of three batches, one has
  /// windows, one their halves and one their quarters, of at least 8 tokens, framed likewise.
  InputFrame frame;
  std::optional<DistillStates> states;  ///< none: a run that is stopped is lost
};

/// How far the result is from its source on the held-out text.
struct DistillReport {
  /// Whether this is the Kullback-Leibler divergence of the source's predictions from the result's,
  /// in nats per token. Otherwise, for models that cannot predict: the squared error of the last
  /// hidden states / their square.
  bool of_predictions = true;
  double before = 0.0, after = 0.0;
  double learning_rate = 0.0;  ///< the peak
  double relative_rate = 0.0;  ///< the same in the units of DistillSettings
  double attention_weight = 0.0;

  bool improved() const { return after < before; }
};

/// What distilling a model into another with `spec` takes.
MemoryNeed distill_memory(const Model& source, const ModelSpec& spec,
                          const DistillSettings& settings);

/// Receives the number of steps done, in trials (each counts from 1) and then in the run, and what
/// is minimised.
using DistillProgress = std::function<void(bool trial, const StepReport& step)>;

/// Trains the tensors of these names in `result`, see overwrite_parameters(), with AdamW (no decay,
/// cosine schedule), in bf16 with fp32 master weights where the device multiplies bf16 fast,
/// otherwise in fp32. Writes them into its files, which are not published yet, if that brings it
/// closer to `source` on the held-out text; otherwise the files stay as they are. `after_step` may
/// be empty. Throws kBadInput for a text shorter than a window or with tokens outside the
/// vocabulary, kInterrupted soon after `stop` turns true, or kInterruptedSaved if settings.states
/// keeps the run, kEnvironment without memory or device, and what RunDirectory throws. The states
/// of a complete run remain until the caller has published the result.
DistillReport distill(const Model& source, const Model& result,
                      std::span<const std::string> tensors, const DistillSettings& settings,
                      const DistillProgress& after_step, const std::atomic<bool>& stop);

}  // namespace regroup
