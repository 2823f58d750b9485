// Shapes: B windows of T tokens, D hidden size.
#include "uptrain/run/distill.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/measurements.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/run/run_record.h"
#include "uptrain/train/lr_schedule.h"
#include "uptrain/train/run_directory.h"
#include "uptrain/train/training_loss.h"

namespace regroup {

namespace {

// RateSearch begins at 0.03, trials at the usual rate: of uptraining, and of distilling.
constexpr double kUnit = kUsualLearningRate / 0.03;
constexpr double kUsualRate = 0.006;
constexpr double kRateUnit = kUsualRate / 0.03;

[[noreturn]] void throw_interrupted() {
  throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
}

// A rate at which steps are skipped is judged by what it leaves.
constexpr std::int64_t kAnySkips = std::numeric_limits<std::int64_t>::max();

struct Trials {
  const UptrainPlan& plan;
  const Model& source;
  const DataLoader& data;
  const std::atomic<bool>& stop;
  ProcessGroup* group;

  // The loss after a trial of that many steps.
  double loss_after(std::int64_t steps, double rate) const {
    TrainedModel student(source, plan.settings, group);
    const RunLoss loss(plan, source, student.model(), group);
    Trainer trainer = student.trainer(loss.function(), data,
                                      {.peak = rate,
                                       .final_ratio = plan.settings.min_learning_rate_ratio,
                                       .warmup_steps = std::max<std::int64_t>(1, steps / 10),
                                       .steps = steps});
    TrainingProgress progress;
    if (!trainer.run(progress, stop, {})) {
      throw_interrupted();
    }
    return judge(loss.function());
  }

  // The mean loss over the judging batches, of which each rank computes its share.
  double judge(const TrainingLoss& loss) const {
    const at::NoGradGuard no_gradients;
    const std::int64_t batch = plan.settings.batch;
    const std::int64_t trained = plan.rate_trials->steps * plan.settings.accumulation;
    const std::int64_t share = group != nullptr ? group->share() : 0;
    const std::int64_t shares = group != nullptr ? group->shares() : 1;
    double sum = 0.0;
    bool stopped = false;
    const std::int64_t judging = plan.rate_trials->judging;
    const bool in_step = plan.settings.passes_in_step();
    for (std::int64_t begin = 0; begin < judging && (in_step || !stopped); begin += shares) {
      const bool counts = begin + share < judging;
      if (!counts && !in_step) {
        break;
      }
      const std::int64_t first = (trained + (counts ? begin + share : begin)) * batch;
      const double value = loss(data.batch(first, batch), first).item<double>();
      sum += counts ? value : 0.0;
      stopped = stop;
    }
    at::Tensor sums = at::tensor({sum, stopped ? 1.0 : 0.0}, at::kDouble);
    if (group != nullptr) {
      sums = group->sum(sums).to(at::kCPU);
    }
    if (sums[1].item<double>() != 0.0) {
      throw_interrupted();
    }
    return sums[0].item<double>() / static_cast<double>(judging);
  }
};

// Of shorter runs, trials would take over a quarter.
constexpr std::int64_t kLeastStepsWithTrials = 128;
constexpr std::int64_t kLeastTrialSteps = 12;

// The run with what distillation sets. `predicts`: whether the models can predict.
UptrainSettings completed(const DistillSettings& settings, bool predicts) {
  UptrainSettings run = settings.run;
  run.precision = fast_precision(run.device);
  run.trained = TrainedWeights::kAttention;
  run.optimizer.weight_decay = 0.0;
  run.teacher.distillation.weight = 1.0;
  run.teacher.attention_weight = settings.attention_weight.value_or(predicts ? 0.0 : 1.0);
  run.memory = MemoryMode::kFull;
  run.max_skipped_in_a_row = kAnySkips;
  return run;
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

// Of windows [B, T+1] of an encoder, the inputs of DistillSettings::frame [B·n, T/n+1] with n = 1,
// 2 or 4 by the number of the batch.
at::Tensor inputs_in(const at::Tensor& windows, std::int64_t first, const InputFrame& frame) {
  constexpr std::int64_t kShortest = 8;
  const std::int64_t length = windows.size(1) - 1;
  const std::int64_t parts = std::int64_t{1} << first / windows.size(0) % 3;
  if (length % parts != 0 || length / parts < kShortest) {
    return windows;
  }
  const at::Tensor whole = windows.narrow(1, 0, length);
  at::Tensor inputs = whole.reshape({-1, length / parts}).clone();
  if (frame.before) {
    inputs.select(1, 0).fill_(*frame.before);
  }
  if (frame.after) {
    inputs.select(1, -1).fill_(*frame.after);
  }
  return at::constant_pad_nd(inputs, {0, 1});  // no encoder reads the last token
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
  return median(std::move(sizes));
}

DataLoader open_text(const std::vector<std::filesystem::path>& files, const UptrainSettings& run,
                     const ModelSpec& spec) {
  return DataLoader(files, run.sequence_length.value(), spec.vocab_size, run.seed);
}

// A number of a recorded recipe.
double recorded_number(const Json& recipe, const char* name) {
  const auto found = recipe.find(name);
  if (found == recipe.end() || !found->is_number() || !(found->get<double>() > 0.0)) {
    throw_bad_input("the run to resume records no {}: it is none of a conversion", name);
  }
  return found->get<double>();
}

// Keeps the states of a run.
class KeptRun {
 public:
  // `report`: what the trials found, which a resumed run takes from its recipe. Without `where`,
  // nothing is kept.
  KeptRun(const std::optional<DistillStates>& where, const Model& source,
          const DistillReport& report, std::vector<StateTensor> tensors)
      : where_(where ? &*where : nullptr),
        model_(fingerprint_of(source)),
        tensors_(std::move(tensors)) {
    if (where_ != nullptr) {
      recipe_ = where_->recipe;
      recipe_["before"] = report.before;
      recipe_["learning_rate"] = report.learning_rate;
      recipe_["relative_rate"] = report.relative_rate;
    }
  }

  // Of the newest state, which is in the tensors then. `run`: steps and batch.
  TrainingProgress begin(const UptrainSettings& run) {
    if (where_ == nullptr || !where_->resume) {
      return {};
    }
    directory_ = RunDirectory::resume(where_->output, recipe_, model_);
    const auto check = [&](const TrainingProgress& found, std::span<const StateTensor>) {
      if (found.step > run.steps.value() || found.samples != found.step * run.batch) {
        throw_bad_input("the state after step {} and {} samples is none of a run of {} steps of {}",
                        found.step, found.samples, run.steps.value(), run.batch);
      }
    };
    return directory_->load_newest(tensors_, where_->warn, {}, check).value_or(TrainingProgress{});
  }

  void save_if_due(const TrainingProgress& progress) {
    constexpr std::chrono::minutes kEvery{10};
    if (where_ == nullptr || std::chrono::steady_clock::now() - saved_ < kEvery) {
      return;
    }
    try {
      save(progress);
    } catch (const std::exception& fault) {  // a full disk ends no run
      call_if_given(where_->warn,
                    fmt::format("step {}: no state was saved: {}", progress.step, fault.what()));
    }
  }

  // A run long enough to have states gets a last one, for what follows may be stopped, too.
  void finish(const TrainingProgress& progress) {
    if (directory_) {
      saved_ = {};
      save_if_due(progress);
    }
  }

  [[noreturn]] void stop(const TrainingProgress& progress, std::int64_t steps) {
    if (where_ == nullptr) {
      throw_interrupted();
    }
    save(progress);
    throw Error(ErrorKind::kInterruptedSaved,
                fmt::format("stopped after step {} of {} of distillation; the same command with "
                            "--resume goes on from {}",
                            progress.step, steps, printable_path(directory_->path())));
  }

 private:
  void save(const TrainingProgress& progress) {
    if (!directory_) {
      directory_ = RunDirectory::create(where_->output, recipe_, model_);
      for (const std::filesystem::path& file : where_->files) {
        std::filesystem::copy_file(file, directory_->path() / file.filename(),
                                   std::filesystem::copy_options::overwrite_existing);
      }
    }
    directory_->save(progress, tensors_);
    saved_ = std::chrono::steady_clock::now();
  }

  const DistillStates* where_;
  std::string model_;
  Json recipe_;
  std::vector<StateTensor> tensors_;
  std::optional<RunDirectory> directory_;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

// Trains the result from its own weights, as often as asked, and judges it.
struct DistillationRun {
  const Model& source;
  const Model& result;
  std::span<const std::string> tensors;
  const DistillSettings& settings;
  const DistillProgress& step_progress;
  const std::atomic<bool>& stop;

  std::optional<Task> task = evaluation_task(source, settings.run.sequence_length.value());
  UptrainSettings run = completed(settings, task.has_value());
  DataLoader text = open_text(run.data, run, source.spec);
  DataLoader held_out = open_text({run.eval_data}, run, source.spec);
  Transformer teacher = load_transformer(source, scalar_type_of(run.precision), run.device);

  DistillReport distilled() {
    DistillReport report{.of_predictions = task.has_value()};
    report.attention_weight = run.teacher.attention_weight;
    if (settings.states && settings.states->resume) {
      const Json recipe = RunDirectory::recorded_recipe(settings.states->output);
      report.before = recorded_number(recipe, "before");
      report.learning_rate = recorded_number(recipe, "learning_rate");
      report.relative_rate = recorded_number(recipe, "relative_rate");
    } else {
      begin(report);
    }
    TrainedModel student(result, run, tensors);
    KeptRun kept(settings.states, source, report, student.state());
    TrainingProgress progress = kept.begin(run);
    const std::int64_t steps = run.steps.value();
    {
      const StopScope between_steps(nullptr);  // for the state to be saved
      if (!train(student, steps, report.learning_rate, progress, [&](const StepReport& step) {
            call_if_given(step_progress, /*trial=*/false, step);
            kept.save_if_due(progress);
          })) {
        kept.stop(progress, steps);
      }
      kept.finish(progress);
    }
    report.after = difference_of(student);
    if (report.improved()) {
      overwrite_parameters(student.masters().tensors(), result.checkpoint);
    }
    return report;
  }

  double difference_of(TrainedModel& student) const {
    return mean_difference(difference_from(student), held_out, run.batch, stop);
  }

  // Encoders read inputs of any length.
  LossFunction difference_from(TrainedModel& student) const {
    LossFunction difference = make_difference(student.model(), teacher, task);
    if (source.spec.causal) {
      return difference;
    }
    return [difference = std::move(difference), &frame = settings.frame](const at::Tensor& windows,
                                                                         std::int64_t first) {
      return difference(inputs_in(windows, first, frame), first);
    };
  }

  // Measures the untrained result and finds the rate.
  void begin(DistillReport& report) {
    double size = 0.0;
    {
      TrainedModel untrained(result, run, tensors);
      size = usual_size(untrained.masters());
      report.before = difference_of(untrained);
    }
    const std::int64_t steps = run.steps.value();
    report.relative_rate = settings.relative_rate.value_or(kUsualRate);
    if (!settings.relative_rate && steps >= kLeastStepsWithTrials) {
      report.relative_rate = best_rate(size, report.before, steps);
    }
    report.learning_rate = size * report.relative_rate;
  }

  // Returns false if it was stopped.
  bool train(TrainedModel& student, std::int64_t steps, double rate, TrainingProgress& progress,
             const std::function<void(const StepReport&)>& after_step) {
    AttentionDistillation attention(student.model(), teacher);
    const LossFunction loss =
        with_attention(difference_from(student), attention, run.teacher.attention_weight);
    Trainer trainer = student.trainer(loss, text, fitting_schedule(rate, steps));
    return trainer.run(progress, stop, after_step);
  }

  // Relative to `size`, for a run of `steps`. `before`: the difference without training.
  double best_rate(double size, double before, std::int64_t steps) {
    const std::int64_t each = std::max(kLeastTrialSteps, steps / 20);
    std::map<double, double> differences;
    RateSearch().best([&](double rate) {
      TrainedModel student(result, run, tensors);
      TrainingProgress progress;
      if (!train(student, each, size * kRateUnit * rate, progress, [&](const StepReport& step) {
            call_if_given(step_progress, /*trial=*/true, step);
          })) {
        throw_interrupted();
      }
      return differences[kRateUnit * rate] = difference_of(student);
    });
    return rate_of_longer_run(differences, before);
  }
};

}  // namespace

std::optional<RateChoice> choose_rate(UptrainPlan& plan, const Model& source,
                                      const DataLoader& data, const RateProgress& after_trial,
                                      const std::atomic<bool>& stop, ProcessGroup* group) {
  if (!plan.rate_trials) {
    return std::nullopt;
  }
  // Ranks stop together, between steps.
  const StopScope scope(group != nullptr ? nullptr : StopScope::current());
  UptrainPlan trial = plan;
  trial.settings.max_skipped_in_a_row = kAnySkips;
  RateChoice choice;
  with_torch_errors([&] {
    const Trials trials{trial, source, data, stop, group};
    choice.before = trials.loss_after(0, 0.0);
    std::map<double, double> losses;  // by relative rate
    const double best = RateSearch().best([&](double relative) {
      const double loss = trials.loss_after(plan.rate_trials->steps, kUnit * relative);
      call_if_given(after_trial, kUnit * relative, loss);
      return losses[relative] = loss;
    });
    choice.rate = kUnit * best;
    choice.after = losses.at(best);
  });
  take_rate(plan, choice.rate);
  return choice;
}

MemoryNeed distill_memory(const Model& source, const ModelSpec& spec,
                          const DistillSettings& settings) {
  const std::int64_t context = settings.run.sequence_length.value();
  const std::optional<Task> task = evaluation_task(source, context);
  UptrainSettings run = completed(settings, task.has_value());
  run.teacher.model = source.path;
  return memory_needed(run, spec, &source.spec, task.value_or(Task{}), context);
}

DistillReport distill(const Model& source, const Model& result,
                      std::span<const std::string> tensors, const DistillSettings& settings,
                      const DistillProgress& after_step, const std::atomic<bool>& stop) {
  DistillReport report;
  with_torch_errors([&] {
    report = DistillationRun{source, result, tensors, settings, after_step, stop}.distilled();
  });
  return report;
}

}  // namespace regroup
