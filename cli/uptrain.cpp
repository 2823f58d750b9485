// regroup uptrain DIR --data FILE... --alpha A --pretrain-steps N --output OUT
#include "uptrain/uptrain.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/document_options.h"
#include "cli/freed_memory.h"
#include "cli/interrupt.h"
#include "cli/many_devices.h"
#include "cli/memory_check.h"
#include "cli/sleeping_threads.h"
#include "cli/task_options.h"
#include "cli/text.h"
#include "cli/uptrain_report.h"
#include "formats/error.h"
#include "formats/file.h"
#include "formats/printable.h"
#include "uptrain/run_directory.h"

namespace regroup {
namespace {

struct UptrainOptions {
  UptrainSettings settings;
  std::vector<std::string> data;
  DocumentOptions documents;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string trained = "all";
  TaskOptions task;
  std::string optimizer = "adamw";
  std::string schedule = "cosine";
  std::string moments = "fp32";
  std::string teacher_precision;
  std::optional<std::int64_t> accumulation;
  int threads = 0;
  int timeout = 600;
  MemoryCheck memory_check;
  std::string resuming;  // "", "yes" or "auto"
  bool resume = false;   // what that comes to
  bool dry_run = false;
  bool json = false;
};

// One line that says how to go on, after the error's own.
[[noreturn]] void explain_resuming(const Error& fault) {
  throw Error(fault.kind(),
              fmt::format("{}; the same command with --resume goes on", fault.what()));
}

// Batches in a step: as asked for, or as the run to go on with has, or one for each rank.
std::int64_t accumulation_of(const UptrainOptions& options) {
  if (options.resume && !options.accumulation) {
    const Json recipe = RunDirectory::recorded_recipe(options.settings.output);
    if (recipe.contains("accumulation") && recipe["accumulation"].is_number_integer()) {
      return recipe["accumulation"];
    }
  }
  return options.accumulation.value_or(options.settings.ranks);
}

void run_uptrain(UptrainOptions options, const Launch& launch, const Console& console) {
  UptrainSettings& settings = options.settings;
  // Before the ranks meet, as the first one makes a run only afterwards.
  const bool automatic = options.resuming == "auto";
  if (automatic && path_exists(settings.output)) {
    if (launch.rank == 0) {
      console.note(fmt::format("{} is complete", printable(settings.output.string(), 0)));
    }
    return;
  }
  options.resume = automatic ? RunDirectory::exists(settings.output) : !options.resuming.empty();
  let_threads_sleep();
  set_compute_threads(threads_of_rank(options.threads, launch));
  keep_freed_memory();
  set_data(settings, options.data);
  settings.documents = options.documents.settings();
  settings.ranks = launch.ranks;
  settings.local_ranks = launch.local_ranks;
  settings.accumulation = accumulation_of(options);
  settings.device = device_of_rank(options.device, launch);
  settings.precision = parse_precision(options.precision);
  settings.trained = parse_trained_weights(options.trained);
  settings.optimizer.kind = parse_optimizer(options.optimizer);
  settings.optimizer.moments = parse_precision(options.moments);
  settings.schedule = parse_schedule(options.schedule);
  settings.task = options.task.settings();
  if (!options.teacher_precision.empty()) {
    settings.teacher.precision = parse_precision(options.teacher_precision);
  }
  take_published_length(settings);
  settings.validate();
  if (launch.rank == 0) {  // which makes it, perhaps before another looks
    RunDirectory::check_output(settings.output, options.resume);
  }

  const Model source = open_computable_model(settings.model);
  const TokenBatches data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  if (plan.memory_available) {
    options.memory_check.apply(plan.memory_needed, *plan.memory_available, settings.device,
                               plan.leaner, options.dry_run, console);
  }
  const auto ranks =
      options.dry_run ? nullptr
                      : meet_ranks(launch, settings.device, std::chrono::seconds(options.timeout));
  if (launch.rank > 0) {  // the first speaks for all
    UptrainObserver silent;
    if (ranks) {
      run_uptraining(plan, source, data, options.resume, silent, interrupt_requested(),
                     ranks.get());
    }
    return;
  }
  for (const std::string& note : plan.notes) {
    console.note("note: " + note);
  }
  if (options.dry_run) {
    console.print(options.json ? text_of_json(plan_json(plan)) : plan_text(plan));
    console.note("dry run: nothing was written");
    return;
  }
  console.note(plan_text(plan));
  ConsoleObserver observer(plan, console);
  try {
    const UptrainResult result = run_uptraining(plan, source, data, options.resume, observer,
                                                interrupt_requested(), ranks.get());
    observer.progress().finish();
    report_result(plan, result, observer.tokens_per_second(), options.json, console);
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterruptedSaved) {
      explain_resuming(fault);
    }
    throw;
  }
}

void add_length_options(CLI::App& command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("--alpha", settings.alpha, "fraction of the pretraining to repeat, e.g. 0.05");
  command.add_option("--pretrain-steps", settings.pretrain_steps,
                     "steps the model was pretrained for");
  command.add_option("--pretrain-tokens", settings.pretrain_tokens,
                     "tokens the model was pretrained on, instead of steps (default of well-known "
                     "models: as published)");
  command.add_option("--steps", settings.steps, "steps to run, instead of all these");
  command.add_option("--sequence", settings.sequence_length,
                     "tokens in a sequence (default: 1024, or the model's positions if fewer)");
  command.add_option("--batch", settings.batch, "sequences computed at a time");
  command.add_option("--accumulate", options.accumulation,
                     "such batches in one step, of all ranks together (default: one for each)");
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
  command.add_option("--epsilon", settings.optimizer.epsilon, "AdamW's, beside the root");
  command.add_option("--moments", options.moments,
                     "AdamW: fp32, or bf16, which takes half the memory");
  command.add_option("--scale-by-parameter", settings.optimizer.scale_by_parameter,
                     "Adafactor: multiply the learning rate by the size of each tensor's weights");
  command.add_option("--clip", settings.max_gradient_norm, "largest gradient norm; 0 for any");
  command.add_option("--seed", settings.seed, "of the order of the data");
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
  command.add_option("--teacher-logits", teacher.logits,
                     "instead of asking the teacher in each step: what regroup teach wrote of it");
  command.add_flag("--other-teacher", teacher.any_source,
                   "take --teacher-logits of any model with this vocabulary, not of the source "
                   "alone");
  command
      .add_option("--distill-attention", teacher.attention_weight,
                  "with a teacher: weight of the relative squared error of what each attention "
                  "gives, added to the loss")
      ->default_str("");
}

void add_run_options(CLI::App& command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("--dtype", options.precision, "fp32, or bf16 with fp32 master weights");
  command.add_flag("--activation-checkpointing", settings.recomputing,
                   "keep only what each block reads and compute the rest again: less memory, a "
                   "third more compute");
  command.add_option("--device", options.device, "cpu, cuda or cuda:N");
  command.add_option("--threads", options.threads, "CPU threads (default: one per core)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command
      .add_option("--timeout", options.timeout,
                  "of several ranks: seconds to wait for one that does not answer")
      ->check(CLI::PositiveNumber);
  options.memory_check.add_to(command);
  command.add_option("--eval-data", settings.eval_data, "token file to evaluate on");
  command.add_option("--eval-every", settings.eval_every,
                     "steps between evaluations; 0: before and after only");
  command.add_option("--eval-max-tokens", settings.eval_max_tokens,
                     "evaluate on about so many tokens");
  command.add_option("--save-every", settings.save_every,
                     "steps between saved states; 0: at the end and when stopped");
  command
      .add_flag(
          "--resume{yes}", options.resuming,
          "go on with an earlier run for the same output; --resume=auto: if there is one, and "
          "do nothing where the output is complete")
      ->check(CLI::IsMember({"yes", "auto"}));
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
  add_document_options(*command, options->documents);
  add_length_options(*command, *options);
  add_recipe_options(*command, *options);
  add_task_options(*command, options->task);
  add_teacher_options(*command, *options);
  add_run_options(*command, *options);
  command->footer(
      "Example: regroup uptrain Llama-2-7b-gqa8 --data tokens.bin --alpha 0.05 \\\n"
      "           --pretrain-steps 500000 --output Llama-2-7b-gqa8-up\n"
      "Many GPUs: torchrun --no-python --nproc-per-node 8 regroup uptrain ... --device cuda\n"
      "T5 as it was pretrained: --optimizer adafactor --schedule inverse-sqrt --start-step N\n"
      "The result appears only when it is complete. Until then OUTPUT.run holds metrics.jsonl and\n"
      "the state; Ctrl-C saves the state, --resume goes on from it.");
  command->callback([options, &console] {
    const Launch launch = launch_from(variable_of_process);
    with_rank_named(launch, [&] { run_uptrain(*options, launch, console); });
  });
}

}  // namespace regroup
