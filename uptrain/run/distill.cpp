// Shapes: B windows of T tokens, D hidden size.
#include "uptrain/run/distill.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/objective/training_loss.h"
#include "uptrain/run/planned_memory.h"
#include "uptrain/run/trained_model.h"

namespace regroup {
namespace {

constexpr double kFinalRate = 0.02;  // the last learning rate as a fraction of the peak

UptrainSettings training_settings(const DistillSettings& settings) {
  UptrainSettings training;
  training.batch = settings.batch;
  training.device = settings.device;
  training.precision = fast_precision(settings.device);
  training.trained = TrainedWeights::kAttention;
  training.optimizer.weight_decay = 0.0;
  training.teacher.distillation.weight = 1.0;
  training.memory = MemoryMode::kFull;
  return training;
}

// The squared error of the student's last hidden states / the square of the teacher's.
at::Tensor hidden_error(const Transformer& student, const Transformer& teacher,
                        const at::Tensor& windows) {
  const at::Tensor ids = windows.narrow(1, 0, windows.size(1) - 1).to(student.device());  // [B, T]
  at::Tensor wanted;
  {
    const at::NoGradGuard no_gradients;
    wanted = teacher.hidden_states(ids).to(at::kFloat);  // [B, T, D]
  }
  const at::Tensor difference = student.hidden_states(ids).to(at::kFloat) - wanted;
  return difference.square().sum() / wanted.square().sum();
}

LossFunction make_loss(const Transformer& student, const Transformer& teacher,
                       const std::optional<Task>& task) {
  if (!task) {
    return [&](const at::Tensor& windows, std::int64_t) {
      return hidden_error(student, teacher, windows);
    };
  }
  TrainingLoss loss(student, *task);
  loss.set_teacher(teacher, {.weight = 1.0});
  return loss;
}

// The mean loss over all windows of the text.
double mean_loss(const LossFunction& loss, const DataLoader& text, std::int64_t batch,
                 const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  double sum = 0.0;
  for (std::int64_t first = 0; first < text.windows(); first += batch) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    const std::int64_t count = std::min(batch, text.windows() - first);
    sum += loss(text.batch(first, count), first).item<double>() * static_cast<double>(count);
  }
  return sum / static_cast<double>(text.windows());
}

// The median over the tensors of their values' root mean square.
double usual_size(const MasterWeights& masters) {
  std::vector<double> sizes;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    sizes.push_back(std::sqrt(masters.read(i).square().mean().item<double>()));
  }
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  return *middle;
}

DataLoader open_text(const std::filesystem::path& file, const DistillSettings& settings,
                     const ModelSpec& spec) {
  return DataLoader({file}, settings.context, spec.vocab_size, /*seed=*/0);
}

LoopSettings loop_settings(const DistillSettings& settings, double peak) {
  return {.steps = settings.steps,
          .batch = settings.batch,
          .schedule = {.peak = peak,
                       .final_ratio = kFinalRate,
                       .warmup_steps = std::max<std::int64_t>(1, settings.steps / 20),
                       .steps = settings.steps}};
}

DistillReport train(const Model& source, const Model& result, std::span<const std::string> tensors,
                    const DistillSettings& settings,
                    const std::function<void(const StepReport&)>& after_step,
                    const std::atomic<bool>& stop) {
  const UptrainSettings training = training_settings(settings);
  const DataLoader text = open_text(settings.data, settings, source.spec);
  const DataLoader held_out = open_text(settings.held_out, settings, source.spec);
  const std::optional<Task> task = evaluation_task(source, settings.context);
  const Transformer teacher =
      load_transformer(source, scalar_type_of(training.precision), settings.device);
  TrainedModel student(result, training, tensors);
  const LossFunction loss = make_loss(student.model(), teacher, task);
  DistillReport report{.of_predictions = task.has_value()};
  report.before = mean_loss(loss, held_out, settings.batch, stop);
  report.learning_rate = settings.learning_rate * usual_size(student.masters());
  TrainingProgress progress;
  Trainer trainer = student.trainer(loss, text, loop_settings(settings, report.learning_rate));
  if (!trainer.run(progress, stop, after_step)) {
    throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
  }
  report.after = mean_loss(loss, held_out, settings.batch, stop);
  if (report.improved()) {
    overwrite_parameters(student.masters().tensors(), result.checkpoint);
  }
  return report;
}

}  // namespace

DistillMemory distill_memory(const Model& source, const ModelSpec& spec,
                             const DistillSettings& settings) {
  UptrainSettings training = training_settings(settings);
  training.teacher.model = source.path;
  const Task task = evaluation_task(source, settings.context).value_or(Task{});
  return {memory_needed(training, spec, &source.spec, task, settings.context),
          free_memory(settings.device)};
}

DistillReport distill(const Model& source, const Model& result,
                      std::span<const std::string> tensors, const DistillSettings& settings,
                      const std::function<void(const StepReport&)>& after_step,
                      const std::atomic<bool>& stop) {
  DistillReport report;
  with_torch_errors([&] { report = train(source, result, tensors, settings, after_step, stop); });
  return report;
}

}  // namespace regroup
