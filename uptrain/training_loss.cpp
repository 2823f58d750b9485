#include "uptrain/training_loss.h"

#include <ATen/core/grad_mode.h>

#include "formats/error.h"

namespace regroup {

void TrainingLoss::set_teacher(const Transformer& teacher, const DistillationSettings& settings) {
  if (teacher.head().size(0) != model_.head().size(0)) {
    throw_bad_input("the teacher's vocabulary has {} tokens, the model's {}",
                    teacher.head().size(0), model_.head().size(0));
  }
  teacher_ = &teacher;
  distillation_ = settings;
}

at::Tensor TrainingLoss::operator()(const at::Tensor& windows, std::int64_t first) const {
  const at::Tensor ids = windows.narrow(1, 0, window_width(task_.objective, windows.size(1) - 1));
  const auto [hidden, targets] = predict(model_, ids, first, task_);
  if (teacher_ == nullptr) {
    return model_.loss(hidden, targets);
  }
  return distillation_loss(model_.head_inputs(hidden), targets, ask_teacher(ids, first),
                           distillation_);
}

HeadInputs TrainingLoss::ask_teacher(const at::Tensor& ids, std::int64_t first) const {
  const at::NoGradGuard no_gradients;
  return teacher_->head_inputs(predict(*teacher_, ids, first, task_).hidden);
}

}  // namespace regroup
