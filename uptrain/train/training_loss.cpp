#include "uptrain/train/training_loss.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include "formats/base/error.h"
#include "formats/spec/model_spec.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

// Sums the choices over all parts. The loss is linear in the probabilities, so that it is a sum
// over parts if each has its own probabilities and the choices of all.
void choices_of_all(const SequencePart& part, std::vector<RouterSums>& layers) {
  std::vector<at::Tensor> chosen;
  for (const RouterSums& layer : layers) {
    chosen.push_back(layer.chosen);
  }
  const at::Tensor sums = part.sum(at::stack(chosen));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].chosen = sums.select(0, static_cast<std::int64_t>(i));
  }
}

// Which places of next-token windows are predicted: bool [B, T].
at::Tensor asked_in(const at::Tensor& windows) {
  return windows.narrow(1, 1, windows.size(1) - 1).ge(0);
}

// The rows of `answers`, one for each prediction of `windows`, that belong to `part`.
TopKLogits answers_of_part(const TopKLogits& answers, const at::Tensor& windows,
                           const SequencePart& part) {
  const std::int64_t context = windows.size(1) - 1;
  const std::int64_t length = context / part.parts();
  const at::Tensor number = at::arange(context, at::kLong).div(length, "floor");
  const at::Tensor asked = asked_in(windows);
  const at::Tensor rows = number.expand_as(asked).masked_select(asked).eq(part.number()).nonzero();
  return {answers.ids.index_select(0, rows.flatten()),
          answers.log_probabilities.index_select(0, rows.flatten())};
}

std::int64_t attentions_of(const ModelSpec& spec) {
  std::int64_t count = 0;
  for (const AttentionRole role : spec.roles()) {
    count += attending_layers(spec, role);
  }
  return count;
}

// The tokens whose next one is predicted, bool [B, T]; undefined if all are: in windows that are
// filled up after a document's end, the others have no part in a loss.
at::Tensor counted_in(const at::Tensor& windows, const SequencePart* part) {
  const at::Tensor asked = asked_in(part_of_windows(windows, part));
  return asked.all().item<bool>() ? at::Tensor() : asked;
}

AttentionObserver collecting(std::vector<at::Tensor>& outputs) {
  return [&outputs](AttentionRole, const at::Tensor&, const at::Tensor& output) {
    outputs.push_back(output);
  };
}

}  // namespace

void RouterBalance::watch(const at::Tensor& counted) {
  layers_.clear();
  model_.set_routing_observer(
      {[this](const RouterSums& sums) { layers_.push_back(sums); }, counted});
}

at::Tensor RouterBalance::take() {
  model_.set_routing_observer({});
  std::vector<RouterSums> layers = std::exchange(layers_, {});
  if (const SequencePart* const part = model_.sequence_part()) {
    choices_of_all(*part, layers);
  }
  const ExpertRouting& routing = model_.spec().routing;
  return balance_loss(layers, routing) * routing.balance_weight;
}

bool has_balance_loss(const ModelSpec& spec) {
  return spec.routing.experts > 0 && spec.routing.balance_weight > 0.0;
}

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
  balance_->watch(counted_in(windows, model_.sequence_part()));
  const at::Tensor loss = task_loss(windows, first);
  return loss + balance_->take();
}

at::Tensor TrainingLoss::task_loss(const at::Tensor& windows, std::int64_t first) const {
  const at::Tensor ids = windows.narrow(1, 0, window_width(task_.objective, windows.size(1) - 1));
  const SequencePart* const part = model_.sequence_part();
  const TaskBatch batch = make_task_batch(part_of_windows(ids, part), first, task_, model_.spec());
  const at::Tensor loss = batch_loss(batch, windows, first);
  if (part == nullptr) {
    return loss;
  }
  const auto asked = static_cast<double>(asked_in(ids).sum().item<std::int64_t>());
  return loss * (static_cast<double>(batch.targets.numel()) / asked);
}

// The mean over the batch.
at::Tensor TrainingLoss::batch_loss(const TaskBatch& batch, const at::Tensor& windows,
                                    std::int64_t first) const {
  TopKLogits answers;
  if (answers_ != nullptr) {
    answers = answers_->read(windows, first);
    if (const SequencePart* const part = model_.sequence_part()) {
      answers = answers_of_part(answers, windows, *part);
    }
  }
  if (attention_ != nullptr) {
    attention_->watch();
  }
  const TaskBatch here =
      uploaded(batch, model_.device(), {&answers.ids, &answers.log_probabilities});
  const Predictions student = predict(model_, here);
  LmHeadInputs teacher;
  if (teacher_ != nullptr) {
    const at::NoGradGuard no_gradients;
    teacher = teacher_->lm_head_inputs(predict(*teacher_, here).hidden);
  }
  const LmHeadInputs inputs = model_.lm_head_inputs(student.hidden);
  at::Tensor loss;
  if (student.targets.numel() == 0) {
    // A part of sequences that have ended before it. The backward pass of this zero reaches all
    // weights, so that this rank takes part in what the others exchange.
    const at::ScalarType wide = wide_type(inputs.hidden);
    loss = (inputs.hidden.sum(wide) + inputs.head.sum(wide)) * 0.0;
  } else if (answers_ != nullptr) {
    loss = distillation_loss(inputs, student.targets, answers, distillation_);
  } else if (teacher_ != nullptr) {
    loss = distillation_loss(inputs, student.targets, teacher, distillation_);
  } else {
    loss = next_token_loss(inputs, student.targets);
  }
  return attention_ != nullptr
             ? loss +
                   attention_->take(counted_in(windows, model_.sequence_part())) * attention_weight_
             : loss;
}

AttentionDistillation::AttentionDistillation(Transformer& student, Transformer& teacher)
    : student_(student), teacher_(teacher) {
  const ModelSpec& own = student.spec();
  const ModelSpec& other = teacher.spec();
  if (attentions_of(own) != attentions_of(other) || own.hidden_size != other.hidden_size) {
    throw_bad_input(
        "the teacher has {} attention layers of width {}, the model {} of {}: one cannot learn "
        "from the other layer by layer",
        attentions_of(other), other.hidden_size, attentions_of(own), own.hidden_size);
  }
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

at::Tensor AttentionDistillation::take(const at::Tensor& counted) {
  look_away();
  const std::vector<at::Tensor> students = std::exchange(of_student_, {});
  const std::vector<at::Tensor> teachers = std::exchange(of_teacher_, {});
  at::Tensor sum;
  for (std::size_t i = 0; i < students.size(); ++i) {
    const at::ScalarType wide = wide_type(students[i]);
    at::Tensor own = students[i].to(wide), target = teachers.at(i).detach().to(wide);
    if (counted.defined()) {
      const at::Tensor shares = counted.to(own.device()).to(wide).unsqueeze(-1);
      own = own * shares;
      target = target * shares;
    }
    const at::Tensor error = (own - target).square().sum() /
                             target.square().sum().clamp_min(1e-12);  // the output may be all zeros
    sum = sum.defined() ? sum + error : error;
  }
  return sum / static_cast<double>(students.size());
}

}  // namespace regroup
