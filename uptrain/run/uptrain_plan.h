// What an uptraining run comes to, before it starts: steps, tokens, compute, memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "uptrain/data/data_loader.h"
#include "uptrain/model/language_model.h"
#include "uptrain/optim/lr_schedule.h"
#include "uptrain/run/memory_savings.h"
#include "uptrain/run/training_memory.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

struct UptrainPlan {
  UptrainSettings settings;  ///< with steps, sequence length and warm-up filled in
  Json recipe;               ///< recipe_of() the above, with alpha as it was asked for
  LrSchedule schedule;
  Task task;

  std::int64_t steps = 0;
  std::int64_t sequence_length = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t tokens = 0;       ///< seen in the whole run
  std::int64_t data_tokens = 0;  ///< in the training files
  double filled = 1.0;           ///< part of these that is text, where documents are kept apart
  double epochs = 0.0;           ///< passes over them, on average where they have weights
  struct Source {
    std::filesystem::path path;
    std::int64_t tokens = 0;
    double share = 0.0;   ///< of all samples
    double epochs = 0.0;  ///< passes over it
  };
  std::vector<Source> sources;  ///< one per training file
  std::int64_t parameters = 0;
  double flops = 0.0;  ///< of the whole run, see training_flops_per_token()
  TrainingMemory memory;
  double memory_needed = 0.0;              ///< of the device: `memory`, on a CPU of all ranks there
  std::optional<double> memory_available;  ///< bytes the device has free, where that is known
  std::vector<LeanerRun> leaner;           ///< where that is less: what would fit
  double state_bytes = 0.0;  ///< of one saved state; two are kept until the run is complete
  /// States are written while training goes on: this machine has the memory for a copy of one.
  bool background_saving = false;
  std::vector<std::string> notes;  ///< what one should know before it starts

  bool fits() const { return !memory_available || memory_needed <= *memory_available; }
};

/// Bytes that training takes on the device, with a teacher's where one is given: on a CPU of all
/// ranks of this machine.
double memory_needed(const UptrainSettings& settings, const ModelSpec& spec,
                     const ModelSpec* teacher, const Task& task, std::int64_t sequence_length);

/// Checks settings, model, data and teacher (of which it reads headers) together. Throws kUsage,
/// also for an output inside the model's directory, or kBadInput.
UptrainPlan plan_uptraining(const UptrainSettings& settings, const Model& source,
                            const DataLoader& data);

/// The training data that `settings` name, cut to the model's vocabulary and the sequence length.
DataLoader open_training_data(const UptrainSettings& settings, const ModelSpec& spec);

/// Adds to a recipe what it says of a task: the objective, and the special tokens of those that
/// need any.
void add_task(Json& recipe, const Task& task);

/// Where a fraction of the pretraining is asked for and its length is not said: takes the one that
/// is published for the model, if there is one (see published_pretraining()). A config.json is
/// enough.
void take_published_length(UptrainSettings& settings);

/// Sequence length in use: as set, else 1024 or the model's number of positions where that is less.
/// Throws kUsage when a model with learned positions has fewer.
std::int64_t sequence_length_of(const UptrainSettings& settings, const ModelSpec& spec);

/// The model `settings` name as the teacher of `student`. Throws kBadInput where it cannot be: its
/// vocabulary, what it predicts or the positions it has are others.
Model open_teacher(const UptrainSettings& settings, const Model& student);

}  // namespace regroup
