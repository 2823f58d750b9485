// The loss of a batch, and of the balance of experts.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/transformer.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/teacher_logits_file.h"

namespace regroup {

/// The mean of ‖s - t‖² / ‖t‖² over all attentions of a model (encoder self-attention, decoder
/// self-attention and cross-attention). s [B, T, D] is the student's attention output after the
/// output projection, t the teacher's. Each model reads its own hidden states, so the error of a
/// layer includes the errors of earlier layers. After the hidden-state loss of FitNets (Romero et
/// al. 2014, https://arxiv.org/abs/1412.6550, equation 3) without its regressor, since the two have
/// the same width.
class AttentionDistillation {
 public:
  /// Both models must outlive this object. Throws kBadInput unless they have the same number of
  /// attentions, of the same width.
  AttentionDistillation(Transformer& student, Transformer& teacher);
  AttentionDistillation(const AttentionDistillation&) = delete;
  AttentionDistillation& operator=(const AttentionDistillation&) = delete;
  ~AttentionDistillation();

  /// Records the attention outputs of both models until take(): one pass of each over the same
  /// windows. Holds the outputs of all attentions in memory.
  void watch();

  /// The loss of these passes: a scalar in fp32 (fp64 for fp64 models), with gradients for the
  /// student. counted: bool [B, T], the tokens that it is over; undefined: all.
  at::Tensor take(const at::Tensor& counted = {});

 private:
  void look_away();

  Transformer& student_;
  Transformer& teacher_;
  std::vector<at::Tensor> of_student_, of_teacher_;  // outputs, in the order of the passes
};

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

  /// Begins to observe. counted: bool [B, T], the tokens that the loss is over; undefined: all.
  void watch(const at::Tensor& counted = {});

  /// The loss times its factor, a scalar with gradients, of the pass since watch(). Ends observing.
  /// If the model computes a part of each sequence, the losses of all parts add up to that of the
  /// sequences.
  at::Tensor take();

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

  /// The same from stored teacher logits in place of a teacher; they must belong to this task.
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
