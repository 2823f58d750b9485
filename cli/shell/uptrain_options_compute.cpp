#include "cli/shell/uptrain_options.h"

#include "cli/shell/devices.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"

namespace regroup {
namespace {

// "--train kv (12.1 GiB), --dtype bf16 (9.8 GiB)".
std::string list_of(const std::vector<LeanerRun>& runs) {
  return joined(runs, ", ", [](const LeanerRun& run) {
    return fmt::format("{} ({})", run.options, text_of_bytes(run.bytes));
  });
}

std::string advice(double available, const std::vector<LeanerRun>& leaner) {
  if (leaner.empty()) {
    return "no option reduces it";
  }
  return leaner.front().bytes <= available ? fmt::format("these options fit: {}", list_of(leaner))
                                           : fmt::format("even {} do not fit", list_of(leaner));
}

constexpr CountRange kStepsOrNone{0, kMostCount};
constexpr std::int64_t kUsualEvaluation = 65'536;

void add_length_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.begin_group("Length");
  add_number(command, "--alpha", settings.alpha,
             "share of the pretraining to train for, such as 0.05", {0.0, 100.0, false});
  add_count(command, "--pretrain-steps", settings.pretrain_steps,
            "steps the model was pretrained for");
  add_count(command, "--pretrain-tokens", settings.pretrain_tokens,
            "tokens the model was pretrained on, instead of steps (default for well-known models: "
            "as published)",
            {1, kMostTokens});
  add_count(command, "--steps", settings.steps, "steps to run, instead of --alpha");
  add_sequence_options(command, settings);
  add_count(command, "--accumulate", options.accumulation,
            "batches in one step, summed over all ranks (default: one per rank)", {1, kMostBatch});
}

void add_schedule_options(Command command, UptrainSettings& settings) {
  add_word(
      command, "--schedule", settings.schedule,
      "learning rate schedule: cosine, wsd (warm-up, stable, decay), constant, or inverse-sqrt "
      "(T5's)",
      {"cosine", "wsd", "constant", "inverse-sqrt"}, parse_lr_schedule);
  add_number(command, "--lr", settings.learning_rate,
             "peak learning rate, or factor of the schedule inverse-sqrt (default: found by short "
             "trials; in runs shorter than 16 steps, 2e-4; inverse-sqrt: 1)",
             {0.0, 10.0, false});
  add_number(command, "--min-lr-ratio", settings.min_learning_rate_ratio,
             "cosine, wsd: final learning rate as a share of the peak", {0.0, 1.0});
  add_count(command, "--warmup", settings.warmup_steps,
            "warm-up steps (default: 2 % of the steps; inverse-sqrt: none)", kStepsOrNone);
  add_count(command, "--decay-steps", settings.decay_steps,
            "wsd: final steps in which the learning rate decays (default: 10 % of the steps)");
  add_count(command, "--start-step", settings.start_step,
            "inverse-sqrt: steps taken before this run (default: --pretrain-steps, or 0)",
            kStepsOrNone);
}

void add_recipe_options(Command command, UptrainSettings& settings) {
  command.begin_group("Recipe");
  add_optimizer_options(command, settings);
  add_schedule_options(command, settings);
  add_number(command, "--weight-decay", settings.optimizer.weight_decay,
             "weight decay; not applied to norms and biases (default: 0.1; Adafactor: 0)",
             {0.0, 10.0});
  add_number(command, "--beta1", settings.optimizer.beta1, "AdamW: decay rate of the first moment",
             {0.0, 0.999999});
  add_number(command, "--beta2", settings.optimizer.beta2, "AdamW: decay rate of the second moment",
             {0.0, 0.999999});
  add_number(command, "--epsilon", settings.optimizer.epsilon,
             "AdamW: added to the root of the second moment", {1e-20, 1.0})
      .default_text("1e-8");
  command
      .add_option("--scale-by-parameter", settings.optimizer.scale_by_parameter,
                  "Adafactor: multiply the learning rate by the size of each tensor's weights")
      .default_text("on");
  add_number(command, "--clip", settings.max_gradient_norm,
             "clip gradients to this norm; 0: no clipping", {0.0, 1e9});
  add_count(command, "--seed", settings.seed, "seed of the data order", kAnySeed);
}

void add_teacher_options(Command command, TeacherSettings& teacher) {
  command.begin_group("Teacher");
  command.add_option("--teacher", teacher.model,
                     "teacher model for distillation, such as the model before conversion");
  add_number(command, "--teacher-weight", teacher.distillation.weight,
             "weight of the distillation loss, 0 to 1; the loss on the text gets the rest",
             {0.0, 1.0});
  add_number(command, "--temperature", teacher.distillation.temperature,
             "softmax temperature of teacher and model in the distillation loss", {0.01, 100.0});
  add_word(command, "--teacher-dtype", teacher.precision,
           "dtype that the teacher computes in (default: as --dtype)", kPrecisions,
           parse_precision);
  command.add_option(
      "--teacher-logits", teacher.logits,
      "directory made by regroup teach, instead of running the teacher in each step");
  command.add_flag("--other-teacher", teacher.any_source,
                   "accept --teacher-logits of any model with this vocabulary, not only of the "
                   "source");
  add_number(command, "--distill-attention", teacher.attention_weight,
             "weight of the relative squared error of each attention layer's output against the "
             "teacher's, added to the loss",
             {0.0, 1000.0})
      .default_text("");
}

void add_run_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.begin_group("Machine and memory");
  add_precision_option(command, settings);
  command.add_flag(
      "--activation-checkpointing", settings.recomputing,
      "keep only the inputs of blocks and recompute the rest: less memory, a third more "
      "compute");
  add_memory_option(command, settings);
  command
      .add_option("--shard", options.shard,
                  "several ranks: what is divided among them: optimizer (masters, moments and "
                  "gradient sums), full (also the weights of model and teacher), or auto (the "
                  "first that fits)")
      .one_of({"auto", "optimizer", "full"});
  add_count(command, "--replicate", settings.sharding.copies,
            "--shard full: copies of the weights, each on as many ranks (default: 1)",
            {2, 1U << 20});
  add_count(command, "--sequence-parallel", settings.sequence_ranks,
            "several ranks: this many share each window, for long contexts (default: 1)",
            {1, 1U << 20});
  add_device_option(command, options.device);
  add_threads_option(command, options.threads);
  add_count(command, "--timeout", options.timeout,
            "several ranks: seconds to wait for one that does not respond (default: 600)",
            {1, 1U << 20});
  add_memory_check_option(command, options.memory_check);
  command.begin_group("Evaluation and states");
  command.add_option("--eval-data", settings.eval_data, "token file to evaluate on");
  add_count(command, "--eval-every", settings.eval_every,
            "steps between evaluations; 0: only before and after the run", kStepsOrNone);
  settings.eval_max_tokens = kUsualEvaluation;
  add_count(
      command, "--eval-max-tokens", settings.eval_max_tokens,
      fmt::format("evaluate on about this many tokens; 0: on all (default: {})", kUsualEvaluation),
      kStepsOrNone);
  add_count(command, "--save-every", settings.save_every,
            "steps between saved states; 0: only at the end and when stopped", kStepsOrNone);
  command.add_flag(
      "--keep-state", settings.keep_state,
      "keep the last state of the complete run, so that --resume with more --steps can "
      "go on once the output has been moved away");
  command
      .add_flag(
          "--resume{yes}", options.resuming,
          "continue an earlier run for the same output; --resume=auto: begin a new run if there is "
          "none, do nothing if the output is complete")
      .one_of({"yes", "auto"});
  command.add_flag("--dry-run", options.dry_run, "show the plan and write nothing");
  add_count(command, "--ranks", options.planned_ranks, "plan for this many ranks", {2, 1U << 20});
  add_count(command, "--ranks-per-machine", options.planned_ranks_per_machine,
            "of --ranks, those that share the memory of a machine (default: all)", {1, 1U << 20});
  command.add_flag("--json", options.json, "report as JSON");
}

}  // namespace

DocumentSettings DocumentOptions::settings() const {
  // For "pack", cli/shell/option_needs.h refuses --document-end and --document-start.
  const bool separate = documents == "separate";
  if (end && start) {
    throw_usage("--document-end, --document-start: only one of them can mark documents");
  }
  DocumentSettings settings{.separate = separate};
  if (end || start) {
    settings.mark = DocumentMark{.token = end ? *end : *start, .ends = end.has_value()};
  }
  return settings;
}

void add_document_options(Command command, DocumentOptions& options) {
  command
      .add_option("--documents", options.documents,
                  "pack: windows are consecutive and may span documents; separate: each window "
                  "holds one document or a part of it")
      .one_of({"pack", "separate"});
  add_count(command, "--document-end", options.end,
            "separate: id of the token that ends a document, in files without Megatron's index",
            kAnyToken);
  add_count(command, "--document-start", options.start,
            "separate: id of the token that begins a document, in files without Megatron's index",
            kAnyToken);
}

void add_task_options(Command command, TaskSettings& task, const std::string& default_objective) {
  add_word(
      command, "--objective", task.objective,
      "encoder-decoders: span-corruption (T5's), text-infilling (BART's), or continuation (the "
      "second half of a window given the first) (default: " +
          default_objective + ")",
      {"next-token", "masked-tokens", "continuation", "span-corruption", "text-infilling"},
      parse_objective);
  add_parsed(command, "--first-sentinel",
             "span corruption: id of <extra_id_0> (default: the tokenizer's)", kCount,
             [&task](const std::string& name, const std::string& typed) {
               const std::uint64_t first = parse_count(name, typed, kAnyToken);
               task.sentinels = Sentinels{.first = static_cast<std::int64_t>(first)};
             });
  add_count(
      command, "--end-token", task.end_token,
      "span corruption, text infilling: id of the token that ends a text (default: the config's)",
      kAnyToken);
  add_count(command, "--mask-token", task.mask_token,
            "BERT-like models, text infilling: id of [MASK] or <mask> (default: the config's, "
            "for text infilling also the tokenizer's)",
            kAnyToken);
}

void check_task_options(const TaskSettings& given, Objective objective) {
  const auto check = [&](const char* option, bool is_given, Objective needed,
                         std::optional<Objective> other) {
    if (is_given && objective != needed && objective != other) {
      refuse_without_effect(
          option, fmt::format("the objective is {}, not {}{}", name_of(objective), name_of(needed),
                              other ? fmt::format(" or {}", name_of(*other)) : ""));
    }
  };
  constexpr Objective kInfilling = Objective::kTextInfilling;
  check("--mask-token", given.mask_token.has_value(), Objective::kMaskedTokens, kInfilling);
  check("--first-sentinel", given.sentinels.has_value(), Objective::kSpanCorruption, {});
  check("--end-token", given.end_token.has_value(), Objective::kSpanCorruption, kInfilling);
}

void add_memory_check_option(Command command, bool& check) {
  add_word(command, "--memory-check", check,
           "on: refuse to start if the estimate exceeds the free memory; off: start anyway",
           {"on", "off"}, [](const std::string& word) { return word == "on"; });
}

void check_memory(const std::optional<MemoryShortage>& shortage, bool refuses,
                  const Console& console) {
  if (!shortage) {
    return;
  }
  const std::string text =
      fmt::format("training needs about {} of memory, {} are free on {}; {}",
                  text_of_bytes(shortage->needed), text_of_bytes(shortage->available),
                  shortage->where.str(), advice(shortage->available, shortage->leaner));
  if (refuses) {
    throw_environment("{}; --memory-check off starts anyway", text);
  }
  console.note("warning: " + text);
}

void add_optimizer_options(Command command, UptrainSettings& settings) {
  add_word(command, "--train", settings.trained,
           "weights to train: all, attention, or kv (keys and values)", {"all", "attention", "kv"},
           parse_trained_weights);
  add_word(command, "--optimizer", settings.optimizer.kind, "optimizer", {"adamw", "adafactor"},
           parse_optimizer);
  add_word(command, "--moments", settings.optimizer.moments,
           "AdamW: dtype of the moments, fp32 or bf16 (half the memory)", kPrecisions,
           parse_precision);
}

void add_precision_option(Command command, UptrainSettings& settings) {
  add_word(command, "--dtype", settings.precision,
           "dtype to compute in: fp32, or bf16 with fp32 master weights", kPrecisions,
           parse_precision);
}

void add_memory_option(Command command, UptrainSettings& settings) {
  const auto parse = [](const std::string& word) {
    return word == "auto" ? std::nullopt : std::optional(parse_memory_mode(word));
  };
  add_word(command, "--memory", settings.memory,
           "where fp32 masters, moments and gradients are: full (on the device), compact (bf16: a "
           "master is its bf16 weight and 16 more bits, gradients in bf16), host (GPUs: in host "
           "memory, updated by the CPU), or auto (the first that fits)",
           {"auto", "full", "compact", "host"}, parse);
}

void add_sequence_options(Command command, UptrainSettings& settings) {
  add_count(command, "--context,--sequence", settings.sequence_length,
            "tokens in a window of text (default: 1024, or the model's positions if fewer)",
            {1, kMostContext});
  add_count(command, "--batch", settings.batch, "windows at a time", {1, kMostBatch});
}

void add_uptrain_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("model", settings.model, kTrainedHelp).required();
  command.begin_group("Text");
  command.add_option(
      "--data", options.data,
      "token files: raw ids, llm.c, numpy, or Megatron's .bin with its .idx; PATH:WEIGHT "
      "sets a file's share of the windows (default: by its size)");
  add_text_input(command, options.text, "instead of --data: text files or JSON lines");
  command.add_option("output,-o,--output", settings.output, "directory to make; must not exist yet")
      .required();
  add_document_options(command, options.documents);
  add_length_options(command, options);
  add_recipe_options(command, settings);
  command.begin_group("What the model was pretrained on");
  add_task_options(command, settings.task, "what the model was pretrained on");
  add_teacher_options(command, settings.teacher);
  add_run_options(command, options);
  command.most_used({"--data", "--text", "--output", "--alpha", "--pretrain-steps", "--steps",
                     "--lr", "--teacher", "--device", "--resume", "--dry-run"});
}

}  // namespace regroup
