#include "cli/report/uptrain_report.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cli/report/plan_report.h"
#include "cli/shell/progress.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/model.h"
#include "formats/model/record_words.h"

namespace regroup {
namespace {

// "read 3.8 times", "5.6 % of it read".
std::string reading_text(double epochs) {
  return epochs < 1      ? fmt::format("{:.2g} % of it read", 100 * epochs)
         : epochs < 1000 ? fmt::format("read {:.3g} times", epochs)
                         : fmt::format("read {} times", with_thousands(std::llround(epochs)));
}

// "2e-4", or how it will be found.
std::string peak_text(const UptrainPlan& plan) {
  return plan.rate_trials ? fmt::format("the best in trials of {} steps", plan.rate_trials->steps)
                          : fmt::format("{:.3g}", plan.schedule.peak);
}

// "2e-4, cosine to 0.1 of it, warm-up 12 steps".
std::string schedule_text(const UptrainPlan& plan) {
  const LrSchedule& schedule = plan.schedule;
  std::string text;
  switch (schedule.kind) {
    case LrScheduleKind::kCosine:
      text = fmt::format("{}, cosine to {:g} of it", peak_text(plan), schedule.final_ratio);
      break;
    case LrScheduleKind::kWarmupStableDecay:
      text = fmt::format("{}, in the last {} steps down to {:g} of it", peak_text(plan),
                         schedule.decay_steps, schedule.final_ratio);
      break;
    case LrScheduleKind::kConstant: text = peak_text(plan) + ", constant"; break;
    case LrScheduleKind::kInverseSqrt:
      text = fmt::format("{:g} / sqrt(max(step, 10000)) from step {} on", schedule.peak,
                         with_thousands(schedule.start_step));
      break;
  }
  return text + fmt::format(", warm-up {} step{}", with_thousands(schedule.warmup_steps),
                            schedule.warmup_steps == 1 ? "" : "s");
}

// The teacher and its weights; empty without a teacher.
std::string teacher_text(const UptrainPlan& plan) {
  const TeacherSettings& teacher = plan.settings.teacher;
  if (!teacher.any()) {
    return "";
  }
  std::string name =
      printable(teacher.present() ? teacher.model.string() : teacher.logits.string(), 0);
  if (!teacher.present()) {
    name = fmt::format("its {} most likely tokens in {}", plan.recipe["teacher_top"].dump(), name);
  }
  const std::string attention =
      teacher.attention_weight > 0
          ? fmt::format(", attention weight {:g}", teacher.attention_weight)
          : "";
  return fmt::format("{}, weight {:g}, temperature {:g}{}", name, teacher.distillation.weight,
                     teacher.distillation.temperature, attention);
}

std::string recipe_text(const UptrainPlan& plan) {
  const UptrainSettings& settings = plan.settings;
  return fmt::format("{} on {} weights, {}; weight decay {:g}, clipping at {:g}",
                     name_of(settings.optimizer.kind), name_of(settings.trained),
                     name_of(plan.task.objective), settings.optimizer.decay_of_matrices(),
                     settings.max_gradient_norm);
}

// The source of a pretraining length that was not given on the command line.
std::string published_text(const UptrainSettings& settings) {
  return settings.published.empty()
             ? ""
             : fmt::format(
                   "{:g} of {} pretraining tokens, published for {}; --pretrain-tokens overrides "
                   "this",
                   *settings.alpha, with_thousands(*settings.pretrain_tokens), settings.published);
}

// A fact per file if there are several.
void add_sources(Facts& facts, const UptrainPlan& plan) {
  if (plan.sources.size() == 1) {
    return;
  }
  for (const UptrainPlan::Source& source : plan.sources) {
    facts.emplace_back(
        "", fmt::format("{:.3g} % from {}, {} tokens, {}", 100 * source.share, source.name,
                        text_of_count(source.tokens), reading_text(source.epochs)));
  }
}

// The share of padding if documents are kept apart.
std::string padding_text(const UptrainPlan& plan) {
  return plan.settings.documents.separate
             ? fmt::format("documents kept apart: {:.3g} % of all positions are padding",
                           100 * (1 - plan.filled))
             : "";
}

// How often the state is saved, its size, and whether saving blocks training.
std::string saving_text(const UptrainPlan& plan) {
  const std::int64_t every = plan.settings.save_every;
  const std::string frequency = every > 0 ? fmt::format("every {} steps", every) : "at the end";
  return fmt::format("{}, {} each, the last two kept, written {}", frequency,
                     text_of_bytes(plan.state_bytes),
                     plan.background_saving ? "in the background" : "while training waits");
}

// What evaluations cost; empty without evaluation data.
std::string evaluations_text(const UptrainPlan& plan) {
  return plan.evaluations
             ? fmt::format("{} times {} tokens of {}, {:.3g} FLOPs", plan.evaluations->count,
                           text_of_count(plan.evaluations->tokens),
                           printable_path(plan.settings.eval_data), plan.evaluations->flops)
             : "";
}

Json sources_json(const UptrainPlan& plan) {
  return json_list(plan.sources, [](const UptrainPlan::Source& source) -> Json {
    return {{"path", source.name},
            {"tokens", source.tokens},
            {"share", source.share},
            {"epochs", source.epochs}};
  });
}

Json evaluation_json(const std::optional<Evaluation>& evaluation) {
  return evaluation ? Json{{"loss", evaluation->loss},
                           {"perplexity", evaluation->perplexity},
                           {"tokens", evaluation->tokens}}
                    : Json();
}

// The division of a step among several ranks, and what travels between them.
void add_ranks(Facts& facts, const UptrainPlan& plan) {
  const UptrainSettings& settings = plan.settings;
  if (settings.ranks == 1) {
    return;
  }
  constexpr double kLink = 50e9;  // bytes per second, as a network of 400 Gbit/s has them
  facts.emplace_back(
      "ranks",
      fmt::format("{}{}, each {} of a step's {} batches of {}", settings.ranks,
                  settings.sequence_ranks == 1
                      ? ""
                      : fmt::format(" in groups of {} that share windows", settings.sequence_ranks),
                  settings.accumulation / settings.shares(), settings.accumulation,
                  settings.batch));
  facts.emplace_back("shard", sharding_text(plan));
  facts.emplace_back(
      "traffic",
      fmt::format("{} of weights and {} of gradients{} per rank and step, {:.2g} s at 50 GB/s",
                  text_of_bytes(plan.traffic.weights),
                  text_of_bytes(plan.traffic.gradients + plan.traffic.copies),
                  plan.traffic.sequences > 0 ? fmt::format(", {} of keys and values",
                                                           text_of_bytes(plan.traffic.sequences))
                                             : "",
                  plan.traffic.total() / kLink));
}

// Shows the progress of a run on the console.
class ConsoleObserver : public UptrainObserver {
 public:
  ConsoleObserver(const UptrainPlan& plan, const std::function<void()>& begun,
                  const Console& console)
      : plan_(plan),
        begun_(begun),
        console_(console),
        progress_(console, "uptrain", plan.schedule.steps, "steps") {}

  void on_start(const TrainingProgress& progress) override {
    begun_();
    progress_.set_start(progress.step);
    if (progress.step > 0) {
      console_.note(
          fmt::format("resuming after step {} of {}", progress.step, plan_.schedule.steps));
    }
  }

  void on_step(const StepReport& report) override {
    trained_seconds_ += report.seconds;
    trained_tokens_ += report.tokens;
    if (!report.skipped) {
      smoothed_loss_ = smoothed_loss_ < 0 ? report.loss : 0.9 * smoothed_loss_ + 0.1 * report.loss;
    }
    progress_.update(report.step, fmt::format("loss {:.4f}  {} tokens/s", smoothed_loss_,
                                              text_of_count(tokens_per_second())));
  }

  void on_metrics(const Json& line) override {
    if (console_.progress_format() == ProgressFormat::kJson) {
      console_.note(line.dump());
    }
  }

  void on_evaluating(std::int64_t step, std::int64_t done, std::int64_t all) override {
    progress_.update(step, fmt::format("evaluating, window {} of {}", done, all));
  }

  void on_evaluation(std::int64_t step, const Evaluation& evaluation) override {
    progress_.interrupt_with(fmt::format("step {}: held-out loss {:.4f}, perplexity {}", step,
                                         evaluation.loss, text_of_perplexity(evaluation.loss)));
  }

  void on_saved(const std::filesystem::path& run, std::int64_t step) override {
    if (console_.verbosity() == Verbosity::kVerbose) {
      progress_.interrupt_with(
          fmt::format("step {}: state saved in {}", step, printable_path(run)));
    }
  }

  void on_warning(const std::string& text) override {
    progress_.interrupt_with("warning: " + text);
  }

  // The speed of the steps so far, without evaluations and saving.
  double tokens_per_second() const {
    return trained_seconds_ > 0 ? static_cast<double>(trained_tokens_) / trained_seconds_ : 0.0;
  }

  void finish() { progress_.finish(); }

 private:
  const UptrainPlan& plan_;
  const std::function<void()>& begun_;
  const Console& console_;
  Progress progress_;
  double smoothed_loss_ = -1.0;
  double trained_seconds_ = 0.0;
  std::int64_t trained_tokens_ = 0;
};

// What its record warns of, and a run after which the model predicts the held-out text worse.
std::vector<std::string> result_warnings(const UptrainPlan& plan, const UptrainResult& result) {
  std::vector<std::string> warnings = warnings_in(record_of(open_model(plan.settings.output)));
  if (result.before && result.after && result.after->loss > result.before->loss) {
    warnings.push_back(fmt::format(
        "the held-out loss rose from {:.4f} to {:.4f}: a lower rate than --lr {:.3g}{} may keep "
        "what the model had",
        result.before->loss, result.after->loss, plan.settings.peak_learning_rate(),
        plan.settings.teacher.any() ? ""
                                    : ", or the source as --teacher with --teacher-weight 1,"));
  }
  return warnings;
}

void report_result(const UptrainPlan& plan, const UptrainResult& result, double tokens_per_second,
                   bool json, const Console& console) {
  const std::string output = plan.settings.output.string();
  const std::vector<std::string> warnings = result_warnings(plan, result);
  console.notes("warning", warnings);
  if (json) {
    Json text = plan_json(plan);
    text["output"] = output;
    text["last_loss"] = result.last_loss;
    text["skipped_steps"] = result.progress.skipped;
    text["before"] = evaluation_json(result.before);
    text["after"] = evaluation_json(result.after);
    text["tokens_per_second"] = tokens_per_second;
    for (const std::string& warning : warnings) {
      text["warnings"].push_back(warning);
    }
    console.print(text_of_json(text));
    return;
  }
  console.print(
      result.before && result.after
          ? fmt::format("held-out loss  {:.4f} -> {:.4f}", result.before->loss, result.after->loss)
          : fmt::format("loss  {:.4f} in the last steps, on the text it trained on",
                        result.last_loss));
  console.print(fmt::format("wrote {}", printable(output, 0)));
}

}  // namespace

std::string plan_text(const UptrainPlan& plan) {
  const UptrainSettings& settings = plan.settings;
  Facts facts{
      {"steps",
       fmt::format("{} of {} tokens ({} of {}), {} tokens in all",
                   with_thousands(plan.schedule.steps), with_thousands(plan.tokens_per_step),
                   text_of_sequences(settings.batch * settings.accumulation),
                   with_thousands(plan.sequence_length), text_of_count(plan.tokens))},
      {"", published_text(settings)}};
  add_ranks(facts, plan);
  facts.emplace_back("data", fmt::format("{} tokens, {}", text_of_count(plan.data_tokens),
                                         reading_text(plan.epochs)));
  add_sources(facts, plan);
  const Facts others{
      {"", padding_text(plan)},
      {"rate", schedule_text(plan)},
      {"recipe", recipe_text(plan)},
      {"teacher", teacher_text(plan)},
      {"model", fmt::format("{} parameters, {} on {}", text_of_count(plan.parameters),
                            name_of(settings.precision), settings.device.str())},
      {"compute", fmt::format("{:.3g} FLOPs", plan.flops)},
      {"evaluate", evaluations_text(plan)},
      {"memory", memory_text(plan)},
      {"states", saving_text(plan)}};
  append(facts, others);
  return text_of_facts(facts, kPlanIndent);
}

Json plan_json(const UptrainPlan& plan) {
  Json json = {
      {"steps", plan.schedule.steps},
      {"ranks", plan.settings.ranks},
      {"sequence_parallel", plan.settings.sequence_ranks},
      {"tokens_per_step", plan.tokens_per_step},
      {"tokens", plan.tokens},
      {"data_tokens", plan.data_tokens},
      {"epochs", plan.epochs},
      {"filled", plan.filled},
      {"data", sources_json(plan)},
      {"parameters", plan.parameters},
      {"flops", plan.flops},
      {"evaluations", plan.evaluations ? Json{{"count", plan.evaluations->count},
                                              {"tokens", plan.evaluations->tokens},
                                              {"flops", plan.evaluations->flops}}
                                       : Json()},
      {"state_bytes", plan.state_bytes},
      {"background_saving", plan.background_saving},
      {"published", plan.settings.published.empty() ? Json() : Json(plan.settings.published)},
      {"notes", plan.notes},
      {"warnings", plan.warnings},
      {"recipe", plan.recipe}};
  if (plan.settings.ranks > 1) {
    json.update(sharding_json(plan));
    json["traffic_bytes"] = {{"weights", plan.traffic.weights},
                             {"gradients", plan.traffic.gradients},
                             {"copies", plan.traffic.copies},
                             {"sequences", plan.traffic.sequences}};
  }
  if (plan.rate_trials) {
    json["rate_trials"] = {
        {"steps", plan.rate_trials->steps},
        {"judging_tokens", plan.rate_trials->judging * plan.settings.batch * plan.sequence_length}};
  }
  json.update(memory_json(plan));
  return json;
}

std::string rate_text(const RateChoice& choice) {
  if (choice.after < choice.before) {
    return fmt::format("rate      {:.3g}: trials lowered the loss from {:.4f} to {:.4f}",
                       choice.rate, choice.before, choice.after);
  }
  return fmt::format(
      "warning: no learning rate tried lowered the loss on text that trials did not train on: it "
      "was {:.4f}, and {:.4f} with the best, {:.3g}, which is used",
      choice.before, choice.after, choice.rate);
}

void train_and_report(const std::function<UptrainResult(UptrainObserver&)>& train,
                      const UptrainPlan& plan, const std::function<void()>& begun, bool json,
                      const Console& console) {
  ConsoleObserver observer(plan, begun, console);
  try {
    const UptrainResult result = train(observer);
    observer.finish();
    report_result(plan, result, observer.tokens_per_second(), json, console);
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::kInterruptedSaved) {
      throw;
    }
    throw Error(fault.kind(),
                fmt::format("{}; run the same command with --resume to continue", fault.what()));
  }
}

}  // namespace regroup
