#include "uptrain/run/uptrain.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/run/run_record.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/rank_agreement.h"
#include "uptrain/train/run_directory.h"
#include "uptrain/train/training_state.h"

namespace regroup {
namespace {

// The metrics and warnings that a run emits as it goes.
class RunJournal {
 public:
  // Writes no metrics until open().
  explicit RunJournal(UptrainObserver& observer) : observer_(observer) {}

  // Only the first rank writes metrics.
  void open(const std::filesystem::path& metrics, std::int64_t last_step) {
    metrics_.emplace(metrics, last_step);
  }

  // Warns if the step was skipped, or if its loss is a spike.
  void record_step(const StepReport& report) {
    Json line = {{"step", report.step},
                 {"loss", number_or_null(report.loss)},
                 {"lr", report.learning_rate},
                 {"grad_norm", number_or_null(report.gradient_norm)},
                 {"tokens", report.step * report.tokens},
                 {"seconds", report.seconds},
                 {"tokens_per_second", static_cast<double>(report.tokens) / report.seconds},
                 {"skipped", report.skipped}};
    if (report.communication) {
      line.update({{"waited_seconds", report.communication->seconds},
                   {"sent_bytes", report.communication->sent},
                   {"received_bytes", report.communication->received}});
    }
    append(line);
    if (report.skipped) {
      observer_.on_warning(
          fmt::format("step {}: loss or gradients are not finite, no update made", report.step));
      return;
    }
    const double usual = losses_.mean();
    if (losses_.add(report.loss)) {
      observer_.on_warning(fmt::format("step {}: the loss is {:.4f}, the last {} had {:.4f}",
                                       report.step, report.loss, LossSpikeDetector::kWindow,
                                       usual));
    }
  }

  void record_evaluation(std::int64_t step, const Evaluation& evaluation) {
    append({{"step", step},
            {"eval_loss", number_or_null(evaluation.loss)},
            {"eval_perplexity", number_or_null(evaluation.perplexity)},
            {"eval_tokens", evaluation.tokens}});
  }

  double mean_loss() const { return losses_.mean(); }

 private:
  void append(const Json& line) {
    if (metrics_) {
      metrics_->append(line);
      observer_.on_metrics(line);
    }
  }

  UptrainObserver& observer_;
  std::optional<MetricsLog> metrics_;
  LossSpikeDetector losses_;
};

// The states of a run on all of its ranks. Each rank saves and loads its part of a state, if all
// ranks see the run's directory. Otherwise the first rank does it for all, and holds whole states
// in host memory for that.
class RunStates {
 public:
  // `group` is null for a single process; `tensors` are this rank's. All ranks construct it, and
  // call all functions but poll(). `observer` is told on the first rank.
  RunStates(ProcessGroup* group, std::vector<StateTensor> tensors, bool in_background,
            UptrainObserver& observer)
      : group_(group),
        state_(group, std::move(tensors)),
        observer_(observer),
        saver_([this](const auto& progress,
                      const auto& saved) { directory_->save(progress, saved, part()); },
               in_background) {}

  // `open` makes or opens the run's directory: with `true` on the first rank, then on the others to
  // join it.
  void open(const std::function<RunDirectory(bool first)>& open) {
    if (group_ == nullptr) {
      directory_.emplace(open(true));
      return;
    }
    group_->on_first([&] { directory_.emplace(open(true)); });
    if (!first()) {
      directory_.emplace(open(false));
    }
    shared_ = all_see(directory_->path());
    if (!shared_ && first()) {
      observer_.on_warning(
          "not all ranks see the directory of the output: rank 0 gathers and writes whole states");
    }
  }

  // Valid after open().
  const RunDirectory& directory() const { return *directory_; }

  // Whether all ranks see the run's directory, and with it the output's.
  bool shared() const { return shared_; }

  // The newest state that all ranks can read; see RunDirectory::load_newest().
  std::optional<TrainingProgress> load_newest(const RunDirectory::Check& check) {
    const auto warn = [&](const std::string& text) {
      if (first()) {
        observer_.on_warning(text);
      }
    };
    if (group_ == nullptr || shared_) {
      return directory_->load_newest(
          state_.own(), warn, [&](const auto& fault) { return first_fault(group_, fault); }, check);
    }
    const std::vector<StateTensor> places = state_.places();
    std::optional<TrainingProgress> progress;
    group_->on_first([&] { progress = directory_->load_newest(places, warn, {}, check); });
    progress = progress_of_first(*group_, progress);
    if (progress) {
      state_.scatter(places);
    }
    return progress;
  }

  // Saves a state, in the background if there is memory for it. A fault is a warning: the previous
  // state remains, and is written before this one is gathered: the host holds one copy.
  void start_saving(const TrainingProgress& progress) {
    finish_saving();
    const std::vector<StateTensor> tensors = tensors_to_save();
    if (shared_ || first()) {
      saver_.start(progress, tensors, shared_ ? std::vector<bool>() : state_.gathered_copies());
    }
    saving_ = progress.step;
    fault_.reset();
    reported_ = false;
    poll();
  }

  // Reports what became of the state that is being saved, as soon as it is known.
  void poll() {
    if (!first() || !saving_ || reported_) {
      return;
    }
    if (!fault_) {
      if (const auto outcome = saver_.outcome()) {
        fault_ = outcome->fault;
      }
    }
    if (fault_ && !fault_->empty()) {
      observer_.on_warning(fmt::format("no state saved at step {}: {}", *saving_, *fault_));
      reported_ = true;
    } else if (fault_ && directory_->is_saved(*saving_)) {
      report_saved(*saving_);
      reported_ = true;
    }
  }

  // Waits for that state.
  void finish_saving() {
    if (!saving_) {
      return;
    }
    if (const auto outcome = saver_.wait()) {
      fault_ = outcome->fault;
    }
    const std::string fault = first_fault(group_, fault_.value_or(""));
    fault_ = fault.empty() ? fault_ : fault;
    poll();
    saving_.reset();
  }

  // Saves a state and returns when it is complete. Throws kEnvironment if it is not.
  void save_now(const TrainingProgress& progress) {
    finish_saving();
    const std::vector<StateTensor> tensors = tensors_to_save();
    const std::string fault = first_fault(group_, fault_of([&] {
                                            if (shared_ || first()) {
                                              directory_->save(progress, tensors, part());
                                            }
                                          }));
    if (!fault.empty()) {
      throw_environment("no state saved at step {}: {}", progress.step, fault);
    }
    if (first()) {
      report_saved(progress.step);
    }
  }

 private:
  bool first() const { return group_ == nullptr || group_->first(); }

  StatePart part() const {
    return shared_ ? StatePart{group_->rank(), group_->size()} : StatePart{};
  }

  std::vector<StateTensor> tensors_to_save() const {
    return shared_ ? state_.part() : state_.gather();
  }

  void report_saved(std::int64_t step) {
    directory_->remove_old_states();
    observer_.on_saved(directory_->path(), step);
  }

  // A file of that name may also be on the disk of another machine, where an earlier run left it.
  bool all_see(const std::filesystem::path& directory) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string name =
        group_->exchange(fmt::format("seen-by-all-{}-{}.partial", ::getpid(), now)).front();
    group_->on_first([&] { write_text(directory / name, ""); });
    const std::vector<std::string> seen =
        group_->exchange(std::filesystem::exists(directory / name) ? "yes" : "");
    group_->on_first([&] { std::filesystem::remove(directory / name); });
    return !contains(seen, "");
  }

  ProcessGroup* group_;
  ShardedState state_;
  UptrainObserver& observer_;
  std::optional<RunDirectory> directory_;
  bool shared_ = false;
  std::optional<std::int64_t> saving_;  // the step of the state that is being saved
  std::optional<std::string> fault_;    // of this rank's part; empty: it is written
  bool reported_ = false;               // what became of the state
  StateSaver saver_;
};

RunDirectory open_run(const UptrainPlan& plan, const Model& source, bool resume, bool first) {
  const std::string model = fingerprint_of(source);
  if (!first) {
    return RunDirectory::join(plan.settings.output, plan.recipe, model);
  }
  return resume ? RunDirectory::resume(plan.settings.output, plan.recipe, model)
                : RunDirectory::create(plan.settings.output, plan.recipe, model);
}

// Of this rank's share.
EvaluationSettings evaluation_of_rank(const UptrainPlan& plan, const ProcessGroup* group) {
  EvaluationSettings settings = evaluation_settings(plan);
  if (group != nullptr) {
    settings.share = group->share();
    settings.shares = group->shares();
  }
  if (group != nullptr && plan.settings.passes_in_step()) {
    settings.any_stops = [group](bool stops) {
      return group->sum(at::tensor(stops ? 1.0 : 0.0)).item<double>() != 0.0;
    };
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
struct Run {
  const UptrainPlan& plan;
  const Model& source;
  const DataLoader& data;
  bool resume;
  UptrainObserver& observer;
  const std::atomic<bool>& stop;
  ProcessGroup* group;  // null if this process is the only one

  RunJournal journal{observer};
  std::optional<TokenFile> eval_file = open_eval_data(plan, source);
  TrainedModel student{source, plan.settings, group};
  RunLoss loss{plan, source, student.model(), group};
  RunStates states{group, student.state(), plan.background_saving, observer};
  TrainingProgress progress = {};
  UptrainResult result = {};

  UptrainResult execute() {
    // Not before all that may fail, so that an error leaves no run directory.
    states.open([&](bool first) { return open_run(plan, source, resume, first); });
    progress = earlier_progress();
    const bool fresh = progress.step == 0;
    on_first([&] { journal.open(states.directory().metrics_path(), fresh ? -1 : progress.step); });
    observer.on_start(progress);
    Trainer trainer = student.trainer(loss.function(), data, plan.schedule);
    if (fresh) {
      result.before = evaluate_now();
      if (result.before) {
        progress.loss_before = result.before->loss;
      }
    } else if (evaluation_is_due() && progress.evaluated != progress.step) {
      result.after = evaluate_now();  // the earlier run was stopped before it finished this
    }
    if (!trainer.run(progress, stop, [&](const StepReport& report) { after_step(report); })) {
      stop_here();
    }
    if (!result.after) {
      result.after = evaluate_now();
    }
    save_result();
    states.finish_saving();
    on_first([&] { states.directory().remove_states(plan.settings.keep_state ? 1 : 0); });
    result.progress = progress;
    result.last_loss = journal.mean_loss();
    return result;
  }

  TrainingProgress earlier_progress() {
    const std::string& changes = states.directory().changes();
    const auto found = states.load_newest([&](const auto& reached, auto tensors) {
      check_reached(plan, reached, tensors, !changes.empty());
    });
    if (!found && resume && !plan.settings.begin_again) {
      throw_usage(
          "{}: no state to resume from: the run ended before its first was saved; --resume=auto "
          "begins it again",
          printable_path(states.directory().path()));
    }
    if (!changes.empty()) {
      observer.on_warning(fmt::format("the run goes on with other settings: {}", changes));
    }
    return found.value_or(TrainingProgress{});
  }

  void on_first(const std::function<void()>& work) {
    if (group != nullptr) {
      group->on_first(work);
    } else {
      work();
    }
  }

  void save_result() {
    const std::string config = config_of_result(plan, source, progress, result.after);
    const ShardedState masters(group, student.masters().tensors());
    if (states.shared()) {
      save_model_from_ranks(*group, source, masters.part(), config, plan.settings.output);
      return;
    }
    const std::vector<StateTensor> whole = masters.gather();
    on_first([&] { save_model(source, whole, config, plan.settings.output); });
  }

  void after_step(const StepReport& report) {
    journal.record_step(report);
    observer.on_step(report);
    states.poll();
    if (evaluation_is_due()) {
      result.after = evaluate_now();
    }
    if (progress.step == plan.schedule.steps || is_due(plan.settings.save_every)) {
      states.start_saving(progress);
    }
  }

  bool is_due(std::int64_t every) const { return every > 0 && progress.step % every == 0; }
  bool evaluation_is_due() const {
    return progress.step == plan.schedule.steps || is_due(plan.settings.eval_every);
  }

  std::optional<Evaluation> evaluate_now() {
    if (!eval_file) {
      return std::nullopt;
    }
    std::optional<Evaluation> evaluation = evaluate_share();
    if (group != nullptr) {
      evaluation = evaluation_of_all(*group, evaluation);
    }
    if (!evaluation) {
      stop_here();
    }
    if (progress.evaluated != progress.step) {  // otherwise the metrics already have it
      journal.record_evaluation(progress.step, *evaluation);
      progress.evaluated = progress.step;
    }
    if (!std::isfinite(evaluation->loss)) {
      observer.on_warning(fmt::format("step {}: the loss on {} is {}", progress.step,
                                      printable_path(plan.settings.eval_data), evaluation->loss));
    }
    observer.on_evaluation(progress.step, *evaluation);
    return evaluation;
  }

  // Evaluates this rank's share of the windows. Returns nothing if the run was stopped meanwhile.
  std::optional<Evaluation> evaluate_share() {
    try {
      return evaluate(
          student.model(), *eval_file, evaluation_of_rank(plan, group),
          [&](auto done, auto all) { observer.on_evaluating(progress.step, done, all); }, stop);
    } catch (const Error& fault) {
      if (fault.kind() == ErrorKind::kInterrupted) {
        return std::nullopt;
      }
      throw;
    }
  }

  [[noreturn]] void stop_here() {
    states.save_now(progress);
    throw Error(ErrorKind::kInterruptedSaved,
                fmt::format("stopped after step {} of {}; the state is in {}", progress.step,
                            plan.schedule.steps,
                            printable_path(RunDirectory::path_for(plan.settings.output))));
  }
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
      [&] { result = Run{plan, source, data, resume, observer, stop, group}.execute(); });
  return result;
}

}  // namespace regroup
