#include "uptrain/objective/training_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "formats/base/error.h"

namespace regroup {

void TrainingLoss::set_teacher(const Transformer& teacher, const DistillationSettings& settings) {
  if (teacher.lm_head().size(0) != model_.lm_head().size(0)) {
    throw_bad_input("the teacher's vocabulary has {} tokens, the model's {}",
                    teacher.lm_head().size(0), model_.lm_head().size(0));
  }
  teacher_ = &teacher;
  distillation_ = settings;
}

void TrainingLoss::set_answers(TeacherLogitsCache& answers, const DistillationSettings& settings) {
  answers_ = &answers;
  distillation_ = settings;
}

void TrainingLoss::set_attention(AttentionDistillation& attention, double weight) {
  attention_ = &attention;
  attention_weight_ = weight;
}

at::Tensor TrainingLoss::operator()(const at::Tensor& windows, std::int64_t first) const {
  if (balance_ == nullptr) {
    return task_loss(windows, first);
  }
  balance_->watch();
  const at::Tensor loss = task_loss(windows, first);
  return loss + balance_->take(windows.size(1) - 1);
}

at::Tensor TrainingLoss::task_loss(const at::Tensor& windows, std::int64_t first) const {
  const at::Tensor ids = windows.narrow(1, 0, window_width(task_.objective, windows.size(1) - 1));
  const TaskBatch batch = make_task_batch(ids, first, task_, model_.spec());
  if (answers_ != nullptr) {
    return answered_loss(batch, answers_->read(windows, first));
  }
  if (attention_ != nullptr) {
    attention_->watch();
  }
  const TaskBatch here = uploaded(batch, model_.device());
  const Predictions student = predict(model_, here);
  if (teacher_ == nullptr) {
    return model_.loss(student.hidden, student.targets);
  }
  const at::Tensor loss = distillation_loss(model_.lm_head_inputs(student.hidden), student.targets,
                                            ask_teacher(here), distillation_);
  return attention_ != nullptr ? loss + attention_->take() * attention_weight_ : loss;
}

at::Tensor TrainingLoss::answered_loss(const TaskBatch& batch, TopKLogits answers) const {
  const TaskBatch here =
      uploaded(batch, model_.device(), {&answers.ids, &answers.log_probabilities});
  const Predictions student = predict(model_, here);
  return distillation_loss(model_.lm_head_inputs(student.hidden), student.targets, answers,
                           distillation_);
}

LmHeadInputs TrainingLoss::ask_teacher(const TaskBatch& batch) const {
  const at::NoGradGuard no_gradients;
  return teacher_->lm_head_inputs(predict(*teacher_, batch).hidden);
}

}  // namespace regroup
