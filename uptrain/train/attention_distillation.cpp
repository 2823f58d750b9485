#include "uptrain/train/attention_distillation.h"

#include <cstdint>
#include <utility>

#include <ATen/TensorOperators.h>

#include "formats/base/error.h"
#include "formats/spec/model_spec.h"

namespace regroup {
namespace {

std::int64_t attentions_of(const ModelSpec& spec) {
  std::int64_t count = 0;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      count += spec.attention(role, layer).present() ? 1 : 0;
    }
  }
  return count;
}

void check_pair(const ModelSpec& student, const ModelSpec& teacher) {
  if (attentions_of(student) != attentions_of(teacher) ||
      student.hidden_size != teacher.hidden_size) {
    throw_bad_input(
        "the teacher has {} attentions of width {}, the model {} of {}: one cannot learn from the "
        "other layer by layer",
        attentions_of(teacher), teacher.hidden_size, attentions_of(student), student.hidden_size);
  }
}

AttentionObserver collecting(std::vector<at::Tensor>& outputs) {
  return [&outputs](AttentionRole, const at::Tensor&, const at::Tensor& output) {
    outputs.push_back(output);
  };
}

}  // namespace

AttentionDistillation::AttentionDistillation(Transformer& student, Transformer& teacher)
    : student_(student), teacher_(teacher) {
  check_pair(student.spec(), teacher.spec());
}

AttentionDistillation::~AttentionDistillation() { look_away(); }

void AttentionDistillation::watch() {
  of_student_.clear();
  of_teacher_.clear();
  student_.set_attention_observer(collecting(of_student_));
  teacher_.set_attention_observer(collecting(of_teacher_));
}

void AttentionDistillation::look_away() {
  student_.set_attention_observer({});
  teacher_.set_attention_observer({});
}

at::Tensor AttentionDistillation::take() {
  look_away();
  const std::vector<at::Tensor> students = std::exchange(of_student_, {});
  const std::vector<at::Tensor> teachers = std::exchange(of_teacher_, {});
  at::Tensor sum;
  for (std::size_t i = 0; i < students.size(); ++i) {
    const auto wide = students[i].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor target = teachers.at(i).detach().to(wide);
    const at::Tensor error = (students[i].to(wide) - target).square().sum() /
                             target.square().sum().clamp_min(1e-12);  // the output may be all zeros
    sum = sum.defined() ? sum + error : error;
  }
  return sum / static_cast<double>(students.size());
}

}  // namespace regroup
