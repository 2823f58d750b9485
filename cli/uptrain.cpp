// regroup uptrain DIR --data FILE... --alpha A --pretrain-steps N --output OUT
#include "uptrain/uptrain.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/sleeping_threads.h"
#include "cli/text.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "uptrain/run_directory.h"

namespace regroup {
namespace {

struct UptrainOptions {
  UptrainSettings settings;
  std::vector<std::string> data;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string trained = "all";
  std::string objective;
  std::int64_t first_sentinel = -1;
  std::string optimizer = "adamw";
  std::string schedule = "cosine";
  std::string teacher_precision;
  int threads = 0;
  bool resume = false;
  bool dry_run = false;
  bool json = false;
};

std::string count_text(std::int64_t count) { return text_of_count(static_cast<double>(count)); }

// "2e-4, cosine to 2e-05, warm-up 12 steps".
std::string schedule_text(const Schedule& schedule) {
  std::string text;
  switch (schedule.kind) {
    case ScheduleKind::kCosine:
      text =
          fmt::format("{:g}, cosine to {:g}", schedule.peak, schedule.peak * schedule.final_ratio);
      break;
    case ScheduleKind::kWarmupStableDecay:
      text = fmt::format("{:g}, in the last {} steps down to {:g}", schedule.peak,
                         schedule.decay_steps, schedule.peak * schedule.final_ratio);
      break;
    case ScheduleKind::kConstant: text = fmt::format("{:g}, constant", schedule.peak); break;
    case ScheduleKind::kInverseSqrt:
      text = fmt::format("{:g} / sqrt(max(step, 10000)) from step {} on", schedule.peak,
                         with_thousands(static_cast<std::uint64_t>(schedule.start_step)));
      break;
  }
  return text + fmt::format(", warm-up {} steps", schedule.warmup_steps);
}

std::string recipe_text(const UptrainPlan& plan) {
  const UptrainSettings& settings = plan.settings;
  std::string text = fmt::format(
      "rate      {}\n"
      "recipe    {} on {} weights, {}; weight decay {:g}, clipping at {:g}\n",
      schedule_text(plan.schedule), name_of(settings.optimizer.kind), name_of(settings.trained),
      name_of(plan.task.objective), settings.optimizer.decay_of_matrices(),
      settings.max_gradient_norm);
  if (settings.teacher.present()) {
    text += fmt::format("teacher   {}, weight {:g}, temperature {:g}\n",
                        printable(settings.teacher.model.string(), 0),
                        settings.teacher.distillation.weight,
                        settings.teacher.distillation.temperature);
  }
  return text;
}

// A line per file where there are several.
std::string sources_text(const UptrainPlan& plan) {
  std::string text;
  for (const UptrainPlan::Source& source : plan.sources) {
    text += fmt::format("          {:.3g} % from {}, {} tokens, seen {:.2f} times\n",
                        100 * source.share, printable(source.path.string(), 0),
                        count_text(source.tokens), source.epochs);
  }
  return plan.sources.size() > 1 ? text : "";
}

std::string memory_text(const UptrainPlan& plan) {
  std::string text = fmt::format("about {} of memory", text_of_memory(plan.memory_bytes));
  if (plan.memory_available) {
    text += fmt::format(", {} available", text_of_memory(*plan.memory_available));
  }
  return text;
}

// When the state is saved, and what that takes.
std::string saving_text(const UptrainPlan& plan) {
  const std::int64_t every = plan.settings.save_every;
  const std::string when = every > 0 ? fmt::format("every {} steps", every) : "at the end";
  return fmt::format("{}, {} each, the last two kept", when, text_of_bytes(plan.state_bytes));
}

std::string plan_text(const UptrainPlan& plan) {
  const UptrainSettings& settings = plan.settings;
  return fmt::format(
      "steps     {} of {} tokens ({} sequences of {}), {} tokens in all\n"
      "data      {} tokens, seen {:.2f} times\n"
      "{}{}"
      "model     {} parameters, {} on {}\n"
      "compute   {:.3g} FLOPs, {}\n"
      "states    {}",
      with_thousands(static_cast<std::uint64_t>(plan.steps)), count_text(plan.tokens_per_step),
      settings.batch * settings.accumulation, plan.sequence_length, count_text(plan.tokens),
      count_text(plan.data_tokens), plan.epochs, sources_text(plan), recipe_text(plan),
      count_text(plan.parameters), name_of(settings.precision), settings.device.str(), plan.flops,
      memory_text(plan), saving_text(plan));
}

Json sources_json(const UptrainPlan& plan) {
  Json sources = Json::array();
  for (const UptrainPlan::Source& source : plan.sources) {
    sources.push_back({{"path", source.path.string()},
                       {"tokens", source.tokens},
                       {"share", source.share},
                       {"epochs", source.epochs}});
  }
  return sources;
}

Json plan_json(const UptrainPlan& plan) {
  return {{"steps", plan.steps},
          {"tokens_per_step", plan.tokens_per_step},
          {"tokens", plan.tokens},
          {"data_tokens", plan.data_tokens},
          {"epochs", plan.epochs},
          {"data", sources_json(plan)},
          {"parameters", plan.parameters},
          {"flops", plan.flops},
          {"memory_bytes", plan.memory_bytes},
          {"memory_available", plan.memory_available ? Json(*plan.memory_available) : Json()},
          {"state_bytes", plan.state_bytes},
          {"recipe", plan.recipe}};
}

Json evaluation_json(const std::optional<Evaluation>& evaluation) {
  if (!evaluation) {
    return {};
  }
  return {{"loss", evaluation->loss},
          {"perplexity", evaluation->perplexity},
          {"tokens", evaluation->tokens}};
}

// Shows a run on the console as it goes.
class ConsoleObserver : public UptrainObserver {
 public:
  ConsoleObserver(const UptrainPlan& plan, const Console& console)
      : plan_(plan),
        console_(console),
        progress_(console, "uptrain", static_cast<std::uint64_t>(plan.steps), "steps") {}

  void on_start(const TrainingProgress& progress) override {
    progress_.set_start(static_cast<std::uint64_t>(progress.step));
    if (progress.step > 0) {
      console_.note(fmt::format("resuming after step {} of {}", progress.step, plan_.steps));
    }
  }
  void on_step(const StepReport& report) override {
    trained_seconds_ += report.seconds;
    trained_tokens_ += report.tokens;
    if (!report.skipped) {
      smoothed_loss_ = smoothed_loss_ < 0 ? report.loss : 0.9 * smoothed_loss_ + 0.1 * report.loss;
    }
    progress_.update(static_cast<std::uint64_t>(report.step),
                     fmt::format("loss {:.4f}  {} tokens/s", smoothed_loss_,
                                 text_of_count(tokens_per_second())));
  }
  void on_evaluation(std::int64_t step, const Evaluation& evaluation) override {
    progress_.interrupt_with(fmt::format("step {}: held-out loss {:.4f}, perplexity {:.4f}", step,
                                         evaluation.loss, evaluation.perplexity));
  }
  void on_saved(const std::filesystem::path& run, std::int64_t step) override {
    if (console_.verbosity() == Verbosity::kVerbose) {
      progress_.interrupt_with(
          fmt::format("step {}: state saved in {}", step, printable(run.string(), 0)));
    }
  }
  void on_warning(const std::string& text) override {
    progress_.interrupt_with("warning: " + text);
  }

  double tokens_per_second() const {
    return trained_seconds_ > 0 ? static_cast<double>(trained_tokens_) / trained_seconds_ : 0.0;
  }
  Progress& progress() { return progress_; }

 private:
  const UptrainPlan& plan_;
  const Console& console_;
  Progress progress_;
  double smoothed_loss_ = -1.0;
  double trained_seconds_ = 0.0;
  std::int64_t trained_tokens_ = 0;
};

void report(const UptrainPlan& plan, const UptrainResult& result, double tokens_per_second,
            bool json, const Console& console) {
  const std::string output = plan.settings.output.string();
  if (json) {
    Json text = plan_json(plan);
    text["output"] = output;
    text["last_loss"] = result.last_loss;
    text["skipped_steps"] = result.progress.skipped;
    text["before"] = evaluation_json(result.before);
    text["after"] = evaluation_json(result.after);
    text["tokens_per_second"] = tokens_per_second;
    console.print(text_of_json(text));
    return;
  }
  if (result.before && result.after) {
    console.print(
        fmt::format("held-out loss  {:.4f} -> {:.4f}", result.before->loss, result.after->loss));
  }
  console.print(fmt::format("wrote {}", printable(output, 0)));
}

// One line that says how to go on, after the error's own.
[[noreturn]] void explain_resuming(const Error& fault) {
  throw Error(fault.kind(),
              fmt::format("{}; the same command with --resume goes on", fault.what()));
}

void run_uptrain(UptrainOptions options, const Console& console) {
  UptrainSettings& settings = options.settings;
  let_threads_sleep();
  set_compute_threads(options.threads);
  set_data(settings, options.data);
  settings.device = parse_device(options.device);
  settings.precision = parse_precision(options.precision);
  settings.trained = parse_trained_weights(options.trained);
  settings.optimizer.kind = parse_optimizer(options.optimizer);
  settings.schedule = parse_schedule(options.schedule);
  if (!options.objective.empty()) {
    settings.task.objective = parse_objective(options.objective);
  }
  if (options.first_sentinel >= 0) {
    settings.task.sentinels = Sentinels{.first = options.first_sentinel};
  }
  if (!options.teacher_precision.empty()) {
    settings.teacher.precision = parse_precision(options.teacher_precision);
  }
  settings.validate();
  RunDirectory::check_output(settings.output, options.resume);

  const Model source = open_computable_model(settings.model);
  const TokenBatches data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  if (options.dry_run) {
    console.print(options.json ? text_of_json(plan_json(plan)) : plan_text(plan));
    console.note("dry run: nothing was written");
    return;
  }
  console.note(plan_text(plan));
  ConsoleObserver observer(plan, console);
  try {
    const UptrainResult result =
        run_uptraining(plan, source, data, options.resume, observer, interrupt_requested());
    observer.progress().finish();
    report(plan, result, observer.tokens_per_second(), options.json, console);
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterruptedSaved) {
      explain_resuming(fault);
    }
    throw;
  }
}

void add_length_options(CLI::App& command, UptrainSettings& settings) {
  command.add_option("--alpha", settings.alpha, "fraction of the pretraining to repeat, e.g. 0.05");
  command.add_option("--pretrain-steps", settings.pretrain_steps,
                     "steps the model was pretrained for");
  command.add_option("--pretrain-tokens", settings.pretrain_tokens,
                     "tokens the model was pretrained on, instead of steps");
  command.add_option("--steps", settings.steps, "steps to run, instead of all these");
  command.add_option("--sequence", settings.sequence_length,
                     "tokens in a sequence (default: 1024, or the model's positions if fewer)");
  command.add_option("--batch", settings.batch, "sequences computed at a time");
  command.add_option("--accumulate", settings.accumulation, "such batches in one step");
}

void add_recipe_options(CLI::App& command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("--train", options.trained,
                     "weights to train: all, attention, or kv (keys and values)");
  command.add_option("--optimizer", options.optimizer, "adamw or adafactor");
  command.add_option("--schedule", options.schedule,
                     "of the learning rate: cosine, wsd (warm-up, stable, decay), constant, or "
                     "inverse-sqrt (T5's)");
  command.add_option("--lr", settings.learning_rate,
                     "highest learning rate (default: 2e-4); inverse-sqrt: what the schedule is "
                     "multiplied by (default: 1)");
  command.add_option("--min-lr-ratio", settings.min_learning_rate_ratio,
                     "cosine, wsd: last learning rate as a fraction of the highest");
  command.add_option("--warmup", settings.warmup_steps,
                     "warm-up steps (default: one in fifty; inverse-sqrt: none)");
  command.add_option("--decay-steps", settings.decay_steps,
                     "wsd: steps at the end in which the rate falls (default: one in ten)");
  command.add_option("--start-step", settings.start_step,
                     "inverse-sqrt: steps taken before this run (default: --pretrain-steps, or 0)");
  command.add_option("--weight-decay", settings.optimizer.weight_decay,
                     "of weights; norms and biases have none (default: 0.1; adafactor: 0)");
  command.add_option("--beta1", settings.optimizer.beta1, "AdamW's decay of the first moment");
  command.add_option("--beta2", settings.optimizer.beta2, "AdamW's decay of the second moment");
  command.add_option("--scale-by-parameter", settings.optimizer.scale_by_parameter,
                     "Adafactor: multiply the learning rate by the size of each tensor's weights");
  command.add_option("--clip", settings.max_gradient_norm, "largest gradient norm; 0 for any");
  command.add_option("--seed", settings.seed, "of the order of the data");
}

void add_task_options(CLI::App& command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("--objective", options.objective,
                     "encoder-decoders: span-corruption (default) or continuation, the second half "
                     "of a sequence after the first");
  command
      .add_option("--first-sentinel", options.first_sentinel,
                  "span corruption: the id of <extra_id_0> (default: the tokenizer's)")
      ->check(CLI::NonNegativeNumber)
      ->default_str("");
  command.add_option("--end-token", settings.task.end_token,
                     "span corruption: what ends a text (default: the config's)");
  command.add_option("--mask-token", settings.task.mask_token,
                     "BERT-like models: the id of [MASK] or <mask> (default: the config's)");
}

void add_teacher_options(CLI::App& command, UptrainOptions& options) {
  TeacherSettings& teacher = options.settings.teacher;
  command.add_option("--teacher", teacher.model,
                     "model to learn from as well, such as the one before conversion");
  command.add_option("--teacher-weight", teacher.distillation.weight,
                     "of its loss against that of the text, 0 to 1");
  command.add_option("--temperature", teacher.distillation.temperature,
                     "of the distributions that teacher and model are compared by");
  command.add_option("--teacher-dtype", options.teacher_precision,
                     "fp32 or bf16 (default: as --dtype)");
}

void add_run_options(CLI::App& command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("--dtype", options.precision, "fp32, or bf16 with fp32 master weights");
  command.add_option("--device", options.device, "cpu, cuda or cuda:N");
  command.add_option("--threads", options.threads, "CPU threads (default: one per core)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command.add_option("--eval-data", settings.eval_data, "token file to evaluate on");
  command.add_option("--eval-every", settings.eval_every,
                     "steps between evaluations; 0: before and after only");
  command.add_option("--eval-max-tokens", settings.eval_max_tokens,
                     "evaluate on about so many tokens");
  command.add_option("--save-every", settings.save_every,
                     "steps between saved states; 0: at the end and when stopped");
  command.add_flag("--resume", options.resume, "go on with an earlier run for the same output");
  command.add_flag("--dry-run", options.dry_run, "show the plan and do nothing");
  command.add_flag("--json", options.json, "report as JSON");
}

}  // namespace

void add_uptrain_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<UptrainOptions>();
  CLI::App* command = program.add_subcommand(
      "uptrain", "Train a converted model for a fraction of its pretraining, to recover quality");
  UptrainSettings& settings = options->settings;
  command->add_option("model", settings.model, "model directory")->required();
  command
      ->add_option(
          "--data", options->data,
          "token files: raw u16, llm.c, numpy, or Megatron's .bin with its .idx; FILE:WEIGHT "
          "for its share of the samples (default: as large as it is)")
      ->required()
      ->default_str("");
  command->add_option("--output", settings.output, "directory to make; must not exist yet")
      ->required();
  add_length_options(*command, settings);
  add_recipe_options(*command, *options);
  add_task_options(*command, *options);
  add_teacher_options(*command, *options);
  add_run_options(*command, *options);
  command->footer(
      "Example: regroup uptrain Llama-2-7b-gqa8 --data tokens.bin --alpha 0.05 \\\n"
      "           --pretrain-steps 500000 --output Llama-2-7b-gqa8-up\n"
      "T5 as it was pretrained: --optimizer adafactor --schedule inverse-sqrt --start-step N\n"
      "The result appears only when it is complete. Until then OUTPUT.run holds metrics.jsonl and\n"
      "the state; Ctrl-C saves the state, --resume goes on from it.");
  command->callback([options, &console] { run_uptrain(*options, console); });
}

}  // namespace regroup
