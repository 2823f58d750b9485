// The loss of a batch, and of the balance of experts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/transformer.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/attention_distillation.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/teacher_logits_file.h"

namespace regroup {

// The load-balancing loss of a model with experts.

/// Observes the routing of a model's layers while it computes a loss. Nothing else may set the
/// model's routing observer as long as this exists.
class RouterBalance {
 public:
  /// `model` must outlive this.
  explicit RouterBalance(Transformer& model) : model_(model) {}
  RouterBalance(const RouterBalance&) = delete;
  RouterBalance& operator=(const RouterBalance&) = delete;
  ~RouterBalance() { model_.set_routing_observer({}); }

  /// Begins to observe.
  void watch();

  /// The loss times its factor, a scalar with gradients, of the pass since watch() over sequences
  /// of `length` tokens. Ends observing. If the model computes a part of each sequence, the losses
  /// of all parts add up to that of the sequences.
  at::Tensor take(std::int64_t length);

 private:
  Transformer& model_;
  std::vector<RouterSums> layers_;
};

/// Whether training this model adds a load-balancing loss.
bool has_balance_loss(const ModelSpec& spec);

// The training loss of one micro-batch.

/// The loss of a model on a task, optionally with distillation from a teacher.
class TrainingLoss {
 public:
  TrainingLoss(const Transformer& model, const Task& task) : model_(model), task_(task) {}

  /// Adds distillation from `teacher`, run on the same windows. It must outlive this object and
  /// have the model's vocabulary.
  void set_teacher(const Transformer& teacher, const DistillationSettings& settings);

  /// Adds distillation from stored teacher logits, which must belong to this task.
  void set_answers(TeacherLogitsCache& answers, const DistillationSettings& settings);

  /// Adds `weight` times the loss of `attention`, of the model and its teacher, in each pass.
  void set_attention(AttentionDistillation& attention, double weight);

  /// Adds the load-balancing loss of the model's routers in each pass.
  void set_router_balance(RouterBalance& balance) { balance_ = &balance; }

  /// A scalar with gradients. windows: int64 [B, T+1] in host memory, samples number `first` and
  /// following; the last token of each is used only in next-token prediction. If the model computes
  /// a part of each sequence, the losses of all parts add up to that of the windows.
  at::Tensor operator()(const at::Tensor& windows, std::int64_t first) const;

 private:
  at::Tensor task_loss(const at::Tensor& windows, std::int64_t first) const;
  at::Tensor batch_loss(const TaskBatch& batch, const at::Tensor& windows,
                        std::int64_t first) const;
  at::Tensor answered_loss(const TaskBatch& batch, TopKLogits answers) const;
  at::Tensor student_loss(const Predictions& student,
                          const std::function<at::Tensor(const LmHeadInputs&)>& loss) const;
  LmHeadInputs ask_teacher(const TaskBatch& batch) const;

  const Transformer& model_;
  Task task_;
  const Transformer* teacher_ = nullptr;
  TeacherLogitsCache* answers_ = nullptr;
  AttentionDistillation* attention_ = nullptr;
  RouterBalance* balance_ = nullptr;
  double attention_weight_ = 0.0;
  DistillationSettings distillation_;
};

}  // namespace regroup
