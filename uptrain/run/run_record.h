// What a run trains and leaves: its loss, the trained model and its record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/model/model.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/evaluate.h"
#include "uptrain/train/lr_schedule.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/teacher_logits_file.h"
#include "uptrain/train/trained_weights.h"
#include "uptrain/train/trainer.h"
#include "uptrain/train/training_loss.h"
#include "uptrain/train/training_state.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

// The training loss of a run: of its task, with its teacher.

class RunLoss {
 public:
  /// Loads the teacher that `plan` names, if any, onto the student's device; if `plan` shards
  /// weights, with `group`, this rank's part of it. `student` must outlive this; `source` is the
  /// model that it was loaded from.
  RunLoss(const UptrainPlan& plan, const Model& source, Transformer& student, ProcessGroup* group);
  RunLoss(const RunLoss&) = delete;
  RunLoss& operator=(const RunLoss&) = delete;

  /// Refers to this object.
  const TrainingLoss& function() const { return loss_; }

 private:
  TrainingLoss loss_;
  std::unique_ptr<ShardedWeights> teacher_shards_;
  std::optional<RanksOfSequence> sequences_;
  std::optional<Transformer> teacher_;
  std::optional<TeacherLogitsCache> answers_;
  std::optional<AttentionDistillation> attention_;
  std::optional<RouterBalance> balance_;
};

// A model in training: its weights, master weights and optimizer.

class TrainedModel {
 public:
  /// The weights of `source`, in the precision and on the device of `settings`; masters and
  /// optimizer in its memory mode, which is set, or else kFull. With `group` (null: a single
  /// process), they are this rank's share; so are the weights, if `settings` shard them.
  TrainedModel(const Model& source, const UptrainSettings& settings, ProcessGroup* group = nullptr);

  /// The same, but trains the tensors of these names instead of those that `settings` name.
  TrainedModel(const Model& source, const UptrainSettings& settings,
               std::span<const std::string> trained, ProcessGroup* group = nullptr);
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  Transformer& model() { return model_; }

  /// Trained weights in fp32; the model's own weights if it computes in fp32 on their device.
  const MasterWeights& masters() const { return masters_; }

  /// Masters and optimizer state, under the names they are saved by.
  std::vector<StateTensor> state() const;

  /// A training loop, which keeps references to this and to `data`.
  Trainer trainer(LossFunction loss, const DataLoader& data, const LrSchedule& schedule);

 private:
  MasterWeights own_masters(const Model& source, std::span<const std::string> trained) const;

  UptrainSettings settings_;
  Parameters weights_;  // what the model computes with
  Parameters trained_;  // those of them that are trained
  std::optional<ZeroPartition> partition_;
  std::unique_ptr<ShardedWeights> shards_;    // null: every rank has all weights
  std::optional<RanksOfSequence> sequences_;  // none: this rank computes whole ones
  MasterWeights masters_;
  Transformer model_;
  FrozenQueries frozen_;
  std::unique_ptr<Optimizer> optimizer_;
};

// The result of a run, written by all its ranks at once.

/// As save_model(), by all ranks, which see the same directories: each writes its `trained` tensors
/// into the same files, and the first also everything else. No rank holds a tensor of another. If
/// one fails, nothing is published and all throw.
void save_model_from_ranks(ProcessGroup& group, const Model& source,
                           std::span<const StateTensor> trained, const std::string& config_text,
                           const std::filesystem::path& destination);

// The description of a run: compared between ranks before it starts, and recorded in its result.

/// What must be equal on all ranks: the recipe, and the settings that time collective operations.
Json asked_of_rank(const UptrainPlan& plan, const Model& source, bool resume);

/// config.json of the result: that of the source plus how it was trained, and the losses on the
/// evaluation data before and `after`, if there is any.
std::string config_of_result(const UptrainPlan& plan, const Model& source,
                             const TrainingProgress& progress,
                             const std::optional<Evaluation>& after);

}  // namespace regroup
