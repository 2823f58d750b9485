// Plans an uptraining run: steps, tokens, compute, memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/spec/model_spec.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/language_model.h"
#include "uptrain/run/memory_choice.h"
#include "uptrain/run/training_memory.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/lr_schedule.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

/// Short trainings that choose the learning rate before the run; see choose_rate().
struct RateTrials {
  std::int64_t steps = 0;    ///< of each
  std::int64_t judging = 0;  ///< batches, those after the steps', whose loss judges it
};

struct UptrainPlan {
  UptrainSettings settings;  ///< with steps, sequence length and warm-up filled in
  Json recipe;               ///< recipe_of() the above, with alpha as requested
  LrSchedule schedule;       ///< has the number of steps
  /// None if the learning rate is set, for kInverseSqrt, and where run or text is too short.
  std::optional<RateTrials> rate_trials;
  Task task;

  std::int64_t sequence_length = 0;
  std::int64_t tokens_per_step = 0;
  std::int64_t tokens = 0;       ///< seen in the whole run
  std::int64_t data_tokens = 0;  ///< in the training files
  double filled = 1.0;           ///< fraction that is text, if documents are kept apart
  double epochs = 0.0;           ///< passes over them, the average if they have weights
  struct Source {
    std::filesystem::path path;
    std::string name;  ///< printable: of the text, if the file holds the tokens of --text
    std::int64_t tokens = 0;
    double share = 0.0;   ///< of all samples
    double epochs = 0.0;  ///< passes over it
  };
  std::vector<Source> sources;  ///< one per training file
  std::int64_t parameters = 0;
  double flops = 0.0;  ///< of the whole run, see training_flops_per_token()
  /// Evaluations, each of about `tokens`; `flops` are those of all.
  struct Evaluations {
    std::int64_t count = 0, tokens = 0;
    double flops = 0.0;
  };
  std::optional<Evaluations> evaluations;  ///< none without evaluation data that can be read
  TrainingMemory memory;
  MemoryChoice memory_choice;  ///< of the mode in `settings`
  ShardingChoice sharding_choice;
  bool sharding_agreed = false;  ///< another rank has too little memory for what this one chose
  FreeMemory memory_free;
  TrainingTraffic traffic;                 ///< between ranks
  std::optional<MemoryShortage> shortage;  ///< if the run does not fit
  double state_bytes = 0.0;  ///< of one saved state; two are kept until the run is complete
  /// Whether states are written in the background: the machine has the memory for a copy of one.
  bool background_saving = false;
  std::vector<std::string> notes, warnings;  ///< for the user, before it starts

  bool fits() const { return !shortage; }
};

/// Checks settings, model, data and the teacher's headers together. Throws kUsage, also for an
/// output inside the model's directory, or kBadInput.
UptrainPlan plan_uptraining(const UptrainSettings& settings, const Model& source,
                            const DataLoader& data);

/// Sets the learning rate that trials have chosen.
void take_rate(UptrainPlan& plan, double rate);

/// Opens the training data of `settings` for the model's vocabulary and the sequence length.
DataLoader open_training_data(const UptrainSettings& settings, const ModelSpec& spec,
                              const std::string& name = {});

/// Adds a task to a recipe: the objective and its special tokens.
void add_task(Json& recipe, const Task& task);

/// If alpha is set without the length of the pretraining, takes the length published for the model,
/// if there is one (see published_pretraining()). A config.json is enough.
void take_published_length(UptrainSettings& settings);

/// Opens the teacher of `student` that `settings` name. Throws kBadInput if its vocabulary,
/// objective or positions do not match.
Model open_teacher(const UptrainSettings& settings, const Model& student);

// The memory of a planned run, and the mode that fits.

/// Bytes that training takes in the memory mode of `settings` (kFull unless set), including a
/// teacher.
MemoryNeed memory_needed(const UptrainSettings& settings, const ModelSpec& spec,
                         const ModelSpec* teacher, const Task& task, std::int64_t sequence_length);

/// How the run is evaluated, by a single process.
EvaluationSettings evaluation_settings(const UptrainPlan& plan);

/// With several ranks, which each planned with the memory of their own device: where sharding or
/// mode were left open, all take the leanest that one of them chose. Every rank must call it.
void agree_on_memory(UptrainPlan& plan, const Model& source, ProcessGroup& group);

}  // namespace regroup
