#include "uptrain/run/run_loss.h"

#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

// The teacher, on the student's device. `shards` gets what holds its weights if they are shared
// out.
std::optional<Transformer> load_teacher(const UptrainSettings& settings, const Model& source,
                                        ProcessGroup* group,
                                        std::unique_ptr<ShardedWeights>& shards) {
  if (!settings.teacher.present()) {
    return std::nullopt;
  }
  const at::ScalarType type =
      scalar_type_of(settings.teacher.precision.value_or(settings.precision));
  const Model model = open_teacher(settings, source);
  if (!settings.sharding.weights || group == nullptr) {
    return load_transformer(model, type, settings.device);
  }
  const Parameters weights = parameters_without_memory(model.spec, type, settings.device);
  shards = load_share(group->sharing(), weights, model.spec, model.checkpoint, {});
  std::optional<Transformer> teacher(std::in_place, model.spec, weights);
  teacher->set_block_weights(shards.get());
  return teacher;
}

// The teacher's stored logits, if the run uses them instead of the teacher.
std::optional<TeacherLogitsCache> open_answers(const TeacherSettings& teacher) {
  return teacher.logits.empty() ? std::nullopt
                                : std::optional(TeacherLogitsCache::open(teacher.logits));
}

}  // namespace

RunLoss::RunLoss(const UptrainPlan& plan, const Model& source, Transformer& student,
                 ProcessGroup* group)
    : loss_(student, plan.task),
      sequences_(ranks_of_sequence(group)),
      teacher_(load_teacher(plan.settings, source, group, teacher_shards_)),
      answers_(open_answers(plan.settings.teacher)) {
  const TeacherSettings& teacher = plan.settings.teacher;
  if (teacher_) {
    teacher_->set_sequence_part(sequences_ ? &*sequences_ : nullptr);
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
