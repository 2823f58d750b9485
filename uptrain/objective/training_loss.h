// What one micro-batch teaches: the loss a step minimises.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/distill/attention_distillation.h"
#include "uptrain/distill/teacher_logits_cache.h"
#include "uptrain/model/transformer.h"
#include "uptrain/objective/objective.h"
#include "uptrain/ops/loss.h"

namespace regroup {

/// The loss of the model's answers to a task, or with a teacher of distillation from it.
class TrainingLoss {
 public:
  TrainingLoss(const Transformer& model, const Task& task) : model_(model), task_(task) {}

  /// From now on `teacher`, which must outlive this and have the model's vocabulary, is asked the
  /// same and has its say.
  void set_teacher(const Transformer& teacher, const DistillationSettings& settings);

  /// The same with what a teacher has answered; they must be answers to this task.
  void set_answers(TeacherLogitsCache& answers, const DistillationSettings& settings);

  /// Adds `weight` times what `attention`, of the model and its teacher, says of each pass.
  void set_attention(AttentionDistillation& attention, double weight);

  /// A scalar with gradients. windows: int64 [B, T+1] in host memory, samples number `first` and
  /// following; the last token of each is used where the next token is asked for.
  at::Tensor operator()(const at::Tensor& windows, std::int64_t first) const;

 private:
  at::Tensor answered_loss(const at::Tensor& windows, std::int64_t first,
                           const Predictions& student) const;
  LmHeadInputs ask_teacher(const at::Tensor& ids, std::int64_t first) const;

  const Transformer& model_;
  Task task_;
  const Transformer* teacher_ = nullptr;
  TeacherLogitsCache* answers_ = nullptr;
  AttentionDistillation* attention_ = nullptr;
  double attention_weight_ = 0.0;
  DistillationSettings distillation_;
};

}  // namespace regroup
