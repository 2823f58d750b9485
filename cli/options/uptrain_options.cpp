#include "cli/options/uptrain_options.h"

#include "cli/options/command.h"
#include "cli/options/number_options.h"

namespace regroup {
namespace {

constexpr CountRange kStepsOrNone{0, kMostCount};

void add_length_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  add_number(command, "--alpha", settings.alpha, "fraction of the pretraining to repeat, e.g. 0.05",
             {0.0, 100.0, false});
  add_count(command, "--pretrain-steps", settings.pretrain_steps,
            "steps the model was pretrained for");
  add_count(command, "--pretrain-tokens", settings.pretrain_tokens,
            "tokens the model was pretrained on, instead of steps (default of well-known models: "
            "as published)",
            {1, kMostTokens});
  add_count(command, "--steps", settings.steps, "steps to run, instead of all these");
  add_sequence_options(command, settings);
  add_count(command, "--accumulate", options.accumulation,
            "such batches in one step, of all ranks together (default: one for each)",
            {1, kMostBatch});
}

void add_schedule_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command
      .add_option("--schedule", options.schedule,
                  "of the learning rate: cosine, wsd (warm-up, stable, decay), constant, or "
                  "inverse-sqrt (T5's)")
      .one_of({"cosine", "wsd", "constant", "inverse-sqrt"});
  add_number(command, "--lr", settings.learning_rate,
             "highest learning rate (default: 2e-4); inverse-sqrt: what the schedule is "
             "multiplied by (default: 1)",
             {0.0, 10.0, false});
  add_number(command, "--min-lr-ratio", settings.min_learning_rate_ratio,
             "cosine, wsd: last learning rate as a fraction of the highest", {0.0, 1.0});
  add_count(command, "--warmup", settings.warmup_steps,
            "warm-up steps (default: one in fifty; inverse-sqrt: none)", kStepsOrNone);
  add_count(command, "--decay-steps", settings.decay_steps,
            "wsd: steps at the end in which the rate falls (default: one in ten)");
  add_count(command, "--start-step", settings.start_step,
            "inverse-sqrt: steps taken before this run (default: --pretrain-steps, or 0)",
            kStepsOrNone);
}

void add_recipe_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  add_optimizer_options(command, options.trained, options.optimizer, options.moments);
  add_schedule_options(command, options);
  add_number(command, "--weight-decay", settings.optimizer.weight_decay,
             "of weights; norms and biases have none (default: 0.1; adafactor: 0)", {0.0, 10.0});
  add_number(command, "--beta1", settings.optimizer.beta1, "AdamW's decay of the first moment",
             {0.0, 0.999999});
  add_number(command, "--beta2", settings.optimizer.beta2, "AdamW's decay of the second moment",
             {0.0, 0.999999});
  add_number(command, "--epsilon", settings.optimizer.epsilon,
             "AdamW: added to the root of the second moment", {1e-20, 1.0});
  command.add_option("--scale-by-parameter", settings.optimizer.scale_by_parameter,
                     "Adafactor: multiply the learning rate by the size of each tensor's weights");
  add_number(command, "--clip", settings.max_gradient_norm, "largest gradient norm; 0 for any",
             {0.0, 1e9});
  add_count(command, "--seed", settings.seed, "of the order of the data", kAnySeed);
}

void add_teacher_options(Command command, UptrainOptions& options) {
  TeacherSettings& teacher = options.settings.teacher;
  command.add_option("--teacher", teacher.model,
                     "model to learn from as well, such as the one before conversion");
  add_number(command, "--teacher-weight", teacher.distillation.weight,
             "of its loss against that of the text, 0 to 1", {0.0, 1.0});
  add_number(command, "--temperature", teacher.distillation.temperature,
             "of the distributions that teacher and model are compared by", {0.01, 100.0});
  command
      .add_option("--teacher-dtype", options.teacher_precision,
                  "fp32 or bf16 (default: as --dtype)")
      .one_of({"fp32", "bf16"});
  command.add_option("--teacher-logits", teacher.logits,
                     "instead of asking the teacher in each step: what regroup teach wrote of it");
  command.add_flag("--other-teacher", teacher.any_source,
                   "take --teacher-logits of any model with this vocabulary, not of the source "
                   "alone");
  add_number(command, "--distill-attention", teacher.attention_weight,
             "with a teacher: weight of the relative squared error of what each attention gives, "
             "added to the loss",
             {0.0, 1000.0})
      .default_text("");
}

void add_run_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command
      .add_option("--dtype", options.precision,
                  "to compute in: fp32, or bf16 with fp32 master weights")
      .one_of({"fp32", "bf16"});
  command.add_flag("--activation-checkpointing", settings.recomputing,
                   "keep only what each block reads and compute the rest again: less memory, a "
                   "third more compute");
  command.add_option("--device", options.device, "cpu, cuda or cuda:N");
  add_threads_option(command, options.threads);
  add_count(command, "--timeout", options.timeout,
            "of several ranks: seconds to wait for one that does not answer (default: 600)",
            {1, 1U << 20});
  options.memory_check.add_to(command);
  command.add_option("--eval-data", settings.eval_data, "token file to evaluate on");
  add_count(command, "--eval-every", settings.eval_every,
            "steps between evaluations; 0: before and after only", kStepsOrNone);
  add_count(command, "--eval-max-tokens", settings.eval_max_tokens,
            "evaluate on about so many tokens");
  add_count(command, "--save-every", settings.save_every,
            "steps between saved states; 0: at the end and when stopped", kStepsOrNone);
  command
      .add_flag(
          "--resume{yes}", options.resuming,
          "go on with an earlier run for the same output; --resume=auto: if there is one, and "
          "do nothing where the output is complete")
      .one_of({"yes", "auto"});
  command.add_flag("--dry-run", options.dry_run, "show the plan and do nothing");
  command.add_flag("--json", options.json, "report as JSON");
}

}  // namespace

void add_optimizer_options(Command command, std::string& trained, std::string& optimizer,
                           std::string& moments) {
  command
      .add_option("--train", trained, "weights to train: all, attention, or kv (keys and values)")
      .one_of({"all", "attention", "kv"});
  command.add_option("--optimizer", optimizer, "adamw or adafactor").one_of({"adamw", "adafactor"});
  command.add_option("--moments", moments, "AdamW: fp32, or bf16, which takes half the memory")
      .one_of({"fp32", "bf16"});
}

void add_sequence_options(Command command, UptrainSettings& settings) {
  add_count(command, "--context,--sequence", settings.sequence_length,
            "tokens in a sequence, under either name (default: 1024, or the model's positions if "
            "fewer)",
            {1, kMostContext});
  add_count(command, "--batch", settings.batch, "sequences computed at a time", {1, kMostBatch});
}

void add_uptrain_options(Command command, UptrainOptions& options) {
  UptrainSettings& settings = options.settings;
  command.add_option("model", settings.model, "model directory").required();
  command
      .add_option(
          "--data", options.data,
          "token files: raw u16, llm.c, numpy, or Megatron's .bin with its .idx; FILE:WEIGHT "
          "for its share of the samples (default: as large as it is)")
      .required()
      .default_text("");
  command.add_option("-o,--output", settings.output, "directory to make; must not exist yet")
      .required();
  add_document_options(command, options.documents);
  add_length_options(command, options);
  add_recipe_options(command, options);
  add_task_options(command, options.task, "span-corruption");
  add_teacher_options(command, options);
  add_run_options(command, options);
}

}  // namespace regroup
