// Shapes: B windows of T tokens, D hidden size.
#include "uptrain/run/distill.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "uptrain/distill/attention_distillation.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/objective/training_loss.h"
#include "uptrain/optim/rate_search.h"
#include "uptrain/run/planned_memory.h"
#include "uptrain/run/trained_model.h"

namespace regroup {
namespace {

constexpr double kFinalRate = 0.02;  // the last learning rate as a fraction of the peak
constexpr double kUsualRate = 0.006;
// RateSearch begins at 0.03.
constexpr double kRateUnit = kUsualRate / 0.03;
constexpr std::int64_t kLeastStepsWithTrials =
    128;  // of shorter runs, trials would take over a quarter
constexpr std::int64_t kLeastTrialSteps = 12;

// `predicts`: whether the models can predict.
UptrainSettings training_settings(const DistillSettings& settings, bool predicts) {
  UptrainSettings training;
  training.batch = settings.batch;
  training.device = settings.device;
  training.precision = fast_precision(settings.device);
  training.trained = TrainedWeights::kAttention;
  training.optimizer.weight_decay = 0.0;
  training.teacher.distillation.weight = 1.0;
  training.teacher.attention_weight = settings.attention_weight.value_or(predicts ? 0.0 : 1.0);
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

// How far `student` is from `teacher`.
LossFunction make_difference(const Transformer& student, const Transformer& teacher,
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

LossFunction with_attention(LossFunction difference, AttentionDistillation& attention,
                            double weight) {
  if (weight == 0.0) {
    return difference;
  }
  return [difference = std::move(difference), &attention, weight](const at::Tensor& windows,
                                                                  std::int64_t first) {
    attention.watch();
    const at::Tensor whole = difference(windows, first);
    return whole + attention.take() * weight;
  };
}

// The mean of `difference` over all windows of the text.
double mean_difference(const LossFunction& difference, const DataLoader& text, std::int64_t batch,
                       const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  double sum = 0.0;
  for (std::int64_t first = 0; first < text.windows(); first += batch) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    const std::int64_t count = std::min(batch, text.windows() - first);
    sum += difference(text.batch(first, count), first).item<double>() * static_cast<double>(count);
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

LoopSettings loop_settings(std::int64_t batch, std::int64_t steps, double peak) {
  return {.steps = steps,
          .batch = batch,
          .max_skipped_in_a_row = steps,  // such a rate is judged by what it leaves
          .schedule = {.peak = peak,
                       .final_ratio = kFinalRate,
                       .warmup_steps = std::max<std::int64_t>(1, steps / 20),
                       .steps = steps}};
}

// Trains the result from its own weights, as often as asked, and judges it.
class DistillationRun {
 public:
  DistillationRun(const Model& source, const Model& result, std::span<const std::string> tensors,
                  const DistillSettings& settings, const DistillProgress& after_step,
                  const std::atomic<bool>& stop)
      : result_(result),
        tensors_(tensors),
        settings_(settings),
        task_(evaluation_task(source, settings.context)),
        training_(training_settings(settings, task_.has_value())),
        after_step_(after_step),
        stop_(stop),
        text_(open_text(settings.data, settings, source.spec)),
        held_out_(open_text(settings.held_out, settings, source.spec)),
        teacher_(load_transformer(source, scalar_type_of(training_.precision), settings.device)) {}

  DistillReport run() {
    DistillReport report{.of_predictions = task_.has_value()};
    report.attention_weight = training_.teacher.attention_weight;
    double size = 0.0;
    {
      TrainedModel untrained(result_, training_, tensors_);
      size = usual_size(untrained.masters());
      report.before = difference_of(untrained);
    }
    report.relative_rate = settings_.learning_rate.value_or(kUsualRate);
    if (!settings_.learning_rate && settings_.steps >= kLeastStepsWithTrials) {
      report.relative_rate = best_rate(size, report.before);
    }
    report.learning_rate = size * report.relative_rate;
    TrainedModel student(result_, training_, tensors_);
    train(student, settings_.steps, report.learning_rate, /*trial=*/false);
    report.after = difference_of(student);
    if (report.improved()) {
      overwrite_parameters(student.masters().tensors(), result_.checkpoint);
    }
    return report;
  }

 private:
  double difference_of(TrainedModel& student) const {
    return mean_difference(make_difference(student.model(), teacher_, task_), held_out_,
                           settings_.batch, stop_);
  }

  void train(TrainedModel& student, std::int64_t steps, double rate, bool trial) {
    AttentionDistillation attention(student.model(), teacher_);
    const LossFunction loss = with_attention(make_difference(student.model(), teacher_, task_),
                                             attention, training_.teacher.attention_weight);
    Trainer trainer = student.trainer(loss, text_, loop_settings(settings_.batch, steps, rate));
    TrainingProgress progress;
    const auto after_step = [&](const StepReport& step) {
      call_if_given(after_step_, trial, step);
    };
    if (!trainer.run(progress, stop_, after_step)) {
      throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
    }
  }

  // Relative to `size`. `before`: the difference without training.
  double best_rate(double size, double before) {
    const std::int64_t steps = std::max(kLeastTrialSteps, settings_.steps / 20);
    std::map<double, double> differences;
    RateSearch().best([&](double rate) {
      TrainedModel student(result_, training_, tensors_);
      train(student, steps, size * kRateUnit * rate, /*trial=*/true);
      return differences[kRateUnit * rate] = difference_of(student);
    });
    return rate_of_longer_run(differences, before);
  }

  const Model& result_;
  std::span<const std::string> tensors_;
  const DistillSettings& settings_;
  std::optional<Task> task_;
  UptrainSettings training_;
  const DistillProgress& after_step_;
  const std::atomic<bool>& stop_;
  DataLoader text_, held_out_;
  Transformer teacher_;
};

}  // namespace

DistillMemory distill_memory(const Model& source, const ModelSpec& spec,
                             const DistillSettings& settings) {
  const std::optional<Task> task = evaluation_task(source, settings.context);
  UptrainSettings training = training_settings(settings, task.has_value());
  training.teacher.model = source.path;
  return {memory_needed(training, spec, &source.spec, task.value_or(Task{}), settings.context),
          free_memory(settings.device)};
}

DistillReport distill(const Model& source, const Model& result,
                      std::span<const std::string> tensors, const DistillSettings& settings,
                      const DistillProgress& after_step, const std::atomic<bool>& stop) {
  DistillReport report;
  with_torch_errors(
      [&] { report = DistillationRun(source, result, tensors, settings, after_step, stop).run(); });
  return report;
}

}  // namespace regroup
