// The training loss of a run: of its task, with its teacher.
#pragma once

#include <memory>
#include <optional>

#include "uptrain/distill/attention_distillation.h"
#include "uptrain/distill/teacher_logits_cache.h"
#include "uptrain/distributed/ranks_of_sequence.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/model/transformer.h"
#include "uptrain/objective/training_loss.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

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

}  // namespace regroup
