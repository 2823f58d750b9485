#include "uptrain/run/run_loss.h"

#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

// The teacher's weights, on the student's device.
std::optional<Transformer> load_teacher(const UptrainSettings& settings, const Model& source) {
  if (!settings.teacher.present()) {
    return std::nullopt;
  }
  const Precision precision = settings.teacher.precision.value_or(settings.precision);
  return load_transformer(open_teacher(settings, source), scalar_type_of(precision),
                          settings.device);
}

// The teacher's stored logits, if the run uses them instead of the teacher.
std::optional<TeacherLogitsCache> open_answers(const TeacherSettings& teacher) {
  return teacher.logits.empty() ? std::nullopt
                                : std::optional(TeacherLogitsCache::open(teacher.logits));
}

}  // namespace

RunLoss::RunLoss(const UptrainPlan& plan, const Model& source, Transformer& student)
    : loss_(student, plan.task),
      teacher_(load_teacher(plan.settings, source)),
      answers_(open_answers(plan.settings.teacher)) {
  const TeacherSettings& teacher = plan.settings.teacher;
  if (teacher_) {
    loss_.set_teacher(*teacher_, teacher.distillation);
  }
  if (teacher.attention_weight > 0) {
    loss_.set_attention(attention_.emplace(student, teacher_.value()), teacher.attention_weight);
  }
  if (has_balance_loss(student.spec())) {
    loss_.set_router_balance(balance_.emplace(student));
  }
  if (answers_) {
    loss_.set_answers(*answers_, teacher.distillation);
  }
}

}  // namespace regroup
