#include "uptrain/run/uptrain.h"

#include <cmath>
#include <span>
#include <vector>

#include <ATen/ops/tensor.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/run/run_record.h"
#include "uptrain/run/run_states.h"
#include "uptrain/train/rank_agreement.h"
#include "uptrain/train/run_directory.h"

namespace regroup {
namespace {

RunDirectory open_run(const UptrainPlan& plan, const Model& source, bool resume, bool first) {
  const std::string model = fingerprint_of(source);
  if (!first) {
    return RunDirectory::join(plan.settings.output, plan.recipe, model);
  }
  return resume ? RunDirectory::resume(plan.settings.output, plan.recipe, model)
                : RunDirectory::create(plan.settings.output, plan.recipe, model);
}

// Says whether any rank stops.
std::function<bool(bool)> any_of(const ProcessGroup& group) {
  return [&group](bool stops) {
    return group.sum(at::tensor(stops ? 1.0 : 0.0)).item<double>() != 0.0;
  };
}

// Of this rank's share.
EvaluationSettings evaluation_of_rank(const UptrainPlan& plan, const ProcessGroup* group) {
  EvaluationSettings settings = evaluation_settings(plan);
  if (group != nullptr) {
    settings.share = group->share();
    settings.shares = group->shares();
    settings.any_stops = plan.settings.passes_in_step() ? any_of(*group) : nullptr;
  }
  return settings;
}

std::optional<TokenFile> open_eval_data(const UptrainPlan& plan, const Model& source) {
  if (plan.settings.eval_data.empty()) {
    return std::nullopt;
  }
  TokenFile file = TokenFile::open(plan.settings.eval_data);
  evaluation_windows(file, evaluation_settings(plan), source.spec);  // throws if there are none
  file.check_vocabulary(source.spec.vocab_size);
  return file;
}

// Throws kBadInput for a progress that no step of the plan has, kUsage if the plan has `changed` to
// fewer steps.
void check_reached(const UptrainPlan& plan, const TrainingProgress& progress,
                   std::span<const StateTensor> tensors, bool changed) {
  if (changed && progress.step > plan.schedule.steps) {
    throw_usage("steps is {}, but the run has a state after step {}", plan.schedule.steps,
                progress.step);
  }
  const std::int64_t samples = plan.settings.batch * plan.settings.accumulation;
  if (progress.step > plan.schedule.steps || progress.samples != progress.step * samples) {
    throw_bad_input("the state after step {} and {} samples is none of a run of {} steps of {}",
                    progress.step, progress.samples, plan.schedule.steps, samples);
  }
  constexpr std::int64_t kMostCounted = std::int64_t{1} << 24;  // where fp32 stops to count
  const std::int64_t updates = progress.step - progress.skipped;
  for (const StateTensor& tensor : tensors) {
    if (tensor.name == "optimizer.count" && updates < kMostCounted &&
        tensor.value.item<double>() != static_cast<double>(updates)) {
      throw_bad_input("the state after step {} counts {} updates, not {}", progress.step,
                      tensor.value.item<double>(), updates);
    }
  }
}

// One run in progress.
class Run {
 public:
  Run(const UptrainPlan& plan, const Model& source, const DataLoader& data, bool resume,
      UptrainObserver& observer, const std::atomic<bool>& stop, ProcessGroup* group)
      : plan_(plan),
        source_(source),
        data_(data),
        observer_(observer),
        stop_(stop),
        group_(group),
        resume_(resume),
        journal_(observer),
        eval_file_(open_eval_data(plan, source)),
        student_(source, plan.settings, group),
        loss_(plan, source, student_.model(), group),
        states_(group, student_.state(), plan.background_saving, observer) {
    // Last, so that an error above leaves no run directory.
    states_.open([&](bool first) { return open_run(plan, source, resume, first); });
  }

  UptrainResult execute() {
    progress_ = earlier_progress();
    const bool fresh = progress_.step == 0;
    on_first(
        [&] { journal_.open(states_.directory().metrics_path(), fresh ? -1 : progress_.step); });
    observer_.on_start(progress_);
    Trainer trainer = student_.trainer(loss_.function(), data_, plan_.schedule);
    if (fresh) {
      result_.before = evaluate_now();
      if (result_.before) {
        progress_.loss_before = result_.before->loss;
      }
    } else if (evaluation_is_due() && progress_.evaluated != progress_.step) {
      result_.after = evaluate_now();  // the earlier run was stopped before it finished this
    }
    if (!trainer.run(progress_, stop_, [&](const StepReport& report) { after_step(report); })) {
      stop_here();
    }
    if (!result_.after) {
      result_.after = evaluate_now();
    }
    save_result();
    states_.finish_saving();
    on_first([&] { states_.directory().remove_states(plan_.settings.keep_state ? 1 : 0); });
    result_.progress = progress_;
    result_.last_loss = journal_.mean_loss();
    return result_;
  }

 private:
  TrainingProgress earlier_progress() {
    const std::string& changes = states_.directory().changes();
    const auto found = states_.load_newest([&](const auto& progress, auto tensors) {
      check_reached(plan_, progress, tensors, !changes.empty());
    });
    if (!found && resume_ && !plan_.settings.begin_again) {
      throw_usage(
          "{}: no state to resume from: the run ended before its first was saved; --resume=auto "
          "begins it again",
          printable_path(states_.directory().path()));
    }
    if (!changes.empty()) {
      observer_.on_warning(fmt::format("the run goes on with other settings: {}", changes));
    }
    return found.value_or(TrainingProgress{});
  }

  void on_first(const std::function<void()>& work) {
    if (group_ != nullptr) {
      group_->on_first(work);
    } else {
      work();
    }
  }

  void save_result() {
    const std::string config = config_of_result(plan_, source_, progress_, result_.after);
    const ShardedState masters(group_, student_.masters().tensors());
    if (states_.shared()) {
      save_model_from_ranks(*group_, source_, masters.part(), config, plan_.settings.output);
      return;
    }
    const std::vector<StateTensor> whole = masters.gather();
    on_first([&] { save_model(source_, whole, config, plan_.settings.output); });
  }

  void after_step(const StepReport& report) {
    journal_.record_step(report);
    observer_.on_step(report);
    states_.poll();
    if (evaluation_is_due()) {
      result_.after = evaluate_now();
    }
    if (progress_.step == plan_.schedule.steps || is_due(plan_.settings.save_every)) {
      states_.start_saving(progress_);
    }
  }

  bool is_due(std::int64_t every) const { return every > 0 && progress_.step % every == 0; }
  bool evaluation_is_due() const {
    return progress_.step == plan_.schedule.steps || is_due(plan_.settings.eval_every);
  }

  std::optional<Evaluation> evaluate_now() {
    if (!eval_file_) {
      return std::nullopt;
    }
    std::optional<Evaluation> evaluation = evaluate_share();
    if (group_ != nullptr) {
      evaluation = evaluation_of_all(*group_, evaluation);
    }
    if (!evaluation) {
      stop_here();
    }
    if (progress_.evaluated != progress_.step) {  // otherwise the metrics already have it
      journal_.record_evaluation(progress_.step, *evaluation);
      progress_.evaluated = progress_.step;
    }
    if (!std::isfinite(evaluation->loss)) {
      observer_.on_warning(fmt::format("step {}: the loss on {} is {}", progress_.step,
                                       printable_path(plan_.settings.eval_data), evaluation->loss));
    }
    observer_.on_evaluation(progress_.step, *evaluation);
    return evaluation;
  }

  // Evaluates this rank's share of the windows. Returns nothing if the run was stopped meanwhile.
  std::optional<Evaluation> evaluate_share() {
    try {
      return evaluate(
          student_.model(), *eval_file_, evaluation_of_rank(plan_, group_),
          [&](auto done, auto all) { observer_.on_evaluating(progress_.step, done, all); }, stop_);
    } catch (const Error& fault) {
      if (fault.kind() == ErrorKind::kInterrupted) {
        return std::nullopt;
      }
      throw;
    }
  }

  [[noreturn]] void stop_here() {
    states_.save_now(progress_);
    throw Error(ErrorKind::kInterruptedSaved,
                fmt::format("stopped after step {} of {}; the state is in {}", progress_.step,
                            plan_.schedule.steps,
                            printable_path(RunDirectory::path_for(plan_.settings.output))));
  }

  const UptrainPlan& plan_;
  const Model& source_;
  const DataLoader& data_;
  UptrainObserver& observer_;
  const std::atomic<bool>& stop_;
  ProcessGroup* group_;  // null if this process is the only one
  bool resume_;
  RunJournal journal_;
  std::optional<TokenFile> eval_file_;
  TrainedModel student_;
  RunLoss loss_;
  RunStates states_;
  TrainingProgress progress_;
  UptrainResult result_;
};

}  // namespace

UptrainResult run_uptraining(const UptrainPlan& plan, const Model& source, const DataLoader& data,
                             bool resume, UptrainObserver& observer, const std::atomic<bool>& stop,
                             ProcessGroup* group) {
  const StopScope scope(nullptr);  // it stops with its state saved
  if (group != nullptr) {
    check_same_on_all(*group, asked_of_rank(plan, source, resume));
  }
  if (group == nullptr || group->first()) {
    RunDirectory::check_output(plan.settings.output, resume);  // before the weights are read
  }
  UptrainResult result;
  with_torch_errors(
      [&] { result = Run(plan, source, data, resume, observer, stop, group).execute(); });
  return result;
}

}  // namespace regroup
