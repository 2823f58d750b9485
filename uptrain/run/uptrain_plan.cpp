#include "uptrain/run/uptrain_plan.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "converter/convert/loader_choice.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/serving_cost.h"
#include "formats/spec/published_pretraining.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/device.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/teacher_logits_file.h"

namespace regroup {
namespace {

constexpr std::int64_t kDefaultSequence = 1024;

// Each setting is bounded, but their product may overflow.
std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      throw_usage(
          "steps x batch x accumulation x context are too many tokens to count: lower one "
          "of them");
    }
  }
  return product;
}

std::int64_t steps_of(const UptrainSettings& settings, std::int64_t tokens_per_step) {
  if (settings.steps) {
    return *settings.steps;
  }
  if (settings.pretrain_steps) {
    return fraction_of(*settings.alpha, *settings.pretrain_steps);
  }
  const std::int64_t tokens = fraction_of(*settings.alpha, *settings.pretrain_tokens);
  return (tokens - 1) / tokens_per_step + 1;
}

std::int64_t warmup_of(const UptrainSettings& settings, std::int64_t steps) {
  const bool rises = settings.schedule != LrScheduleKind::kInverseSqrt;
  const std::int64_t usual = rises ? std::max<std::int64_t>(1, steps / 50) : 0;
  const std::int64_t warmup = settings.warmup_steps.value_or(usual);
  if (warmup >= steps && settings.warmup_steps && steps > 1) {
    throw_usage("warm-up of {} steps in a run of {}: allowed are fewer than the run has", warmup,
                steps);
  }
  return std::min(warmup, steps);
}

LrSchedule schedule_of(const UptrainSettings& settings, std::int64_t steps) {
  LrSchedule schedule{.peak = settings.peak_learning_rate(),
                      .final_ratio = settings.min_learning_rate_ratio,
                      .warmup_steps = warmup_of(settings, steps),
                      .steps = steps,
                      .kind = settings.schedule};
  schedule.decay_steps = settings.decay_steps.value_or(std::max<std::int64_t>(1, steps / 10));
  schedule.start_step = settings.start_step.value_or(settings.pretrain_steps.value_or(0));
  if (settings.decay_steps && *settings.decay_steps > steps - schedule.warmup_steps) {
    throw_usage("decay of {} steps in a run of {}, {} of them warm-up: allowed are {}",
                *settings.decay_steps, steps, schedule.warmup_steps, steps - schedule.warmup_steps);
  }
  return schedule;
}

// A run shorter than this says nothing about rates before it ends.
constexpr std::int64_t kFewestStepsForTrials = 16;
constexpr std::int64_t kJudgingTokens = 16'384;
constexpr std::int64_t kFewestJudging = 4;  // batches

// Whether the run would find its rate, if the text is long enough.
bool wants_trials(const UptrainSettings& settings, std::int64_t steps) {
  return !settings.learning_rate && settings.schedule != LrScheduleKind::kInverseSqrt &&
         steps >= kFewestStepsForTrials;
}

// A trial is a thirty-second of the run, or of a short one 8 steps, a quarter of it at most. Losses
// of trials differ by much less than those of texts, because all trials see the same text.
std::optional<RateTrials> trials_of(const UptrainSettings& settings, std::int64_t steps,
                                    const DataLoader& data) {
  if (!wants_trials(settings, steps)) {
    return std::nullopt;
  }
  const std::int64_t fewest = std::min<std::int64_t>(8, steps / 4);
  RateTrials trials{.steps = std::clamp<std::int64_t>(steps / 32, fewest, 100)};
  const std::int64_t trained = trials.steps * settings.accumulation;
  const std::int64_t enough = (kJudgingTokens - 1) / (settings.batch * data.sequence_length()) + 1;
  trials.judging = std::min({enough, steps * settings.accumulation - trained,
                             data.windows() / settings.batch - trained});  // of the first epoch
  return trials.judging >= kFewestJudging ? std::optional(trials) : std::nullopt;
}

// Fills in what the schedule made of the settings.
void take_schedule(UptrainSettings& settings, const LrSchedule& schedule) {
  settings.steps = schedule.steps;
  settings.warmup_steps = schedule.warmup_steps;
  if (schedule.kind == LrScheduleKind::kWarmupStableDecay) {
    settings.decay_steps = schedule.decay_steps;
  }
  if (schedule.kind == LrScheduleKind::kInverseSqrt) {
    settings.start_step = schedule.start_step;
  }
}

std::vector<UptrainPlan::Source> sources_of(const UptrainPlan& plan, const DataLoader& data) {
  const std::int64_t samples = plan.tokens / plan.sequence_length;
  std::vector<UptrainPlan::Source> sources;
  for (std::size_t i = 0; i < data.files().size(); ++i) {
    const TokenFile& file = data.files()[i];
    sources.push_back(
        {file.path(), file.name(), file.size(), data.share_of(i), data.passes_through(i, samples)});
  }
  return sources;
}

// Adds the teacher's cost: its weights, and a forward pass, which takes a third of the operations
// of training.
void add_teacher(UptrainPlan& plan, const Model& teacher) {
  plan.recipe["teacher"] = fingerprint_of(teacher);
  plan.flops += training_flops_per_token(teacher.spec, plan.task, plan.sequence_length) *
                static_cast<double>(plan.tokens) / 3.0;
}

// Logits of a model that is neither the student nor its source are probably a mistake, although a
// student can learn from them.
void check_answers_source(UptrainPlan& plan, const Model& student, const std::string& teacher) {
  if (plan.settings.teacher.any_source || teacher == fingerprint_of(student)) {
    return;
  }
  const std::string answers = printable_path(plan.settings.teacher.logits);
  const std::string model = printable_path(student.path);
  const Fact<std::string> source = record_of(student).source_fingerprint;
  if (!source.recorded()) {
    plan.notes.push_back(fmt::format(
        "{} does not record its source, so it is not known whether {} are logits of that source",
        model, answers));
  } else if (source.value != teacher) {
    throw_usage(
        "{}: teacher logits of another model than the source of {}: its fingerprint is {}, the "
        "source's {}; --other-teacher accepts them",
        answers, model, printable_json(Json(teacher)), printable_json(source.stored));
  }
}

// Stored logits take no computation, but they must match this run.
void add_answers(UptrainPlan& plan, const Model& student, const DataLoader& data) {
  const TeacherSettings& teacher = plan.settings.teacher;
  TeacherLogitsCache answers = TeacherLogitsCache::open(teacher.logits);
  if (answers.facts().vocab_size != student.spec.vocab_size) {
    throw_bad_input("{}: the teacher's vocabulary has {} tokens, the model's {}",
                    printable_path(teacher.logits), answers.facts().vocab_size,
                    student.spec.vocab_size);
  }
  check_answers_source(plan, student, answers.facts().teacher);
  answers.check_fit(plan.recipe, teacher.distillation.temperature,
                    plan.schedule.steps * plan.settings.batch * plan.settings.accumulation, data);
  plan.recipe["teacher"] = answers.facts().teacher;
  plan.recipe["teacher_top"] = answers.facts().top;
}

// A conversion's result learns more with its source as the teacher (docs/defaults.md).
void advise_teacher(UptrainPlan& plan, const Model& student) {
  if (!plan.settings.teacher.any() && record_of(student).pooled()) {
    plan.notes.push_back("the model before conversion can teach this one: --teacher");
  }
}

// The loss on a text that is read several times falls while that on other text may rise.
void advise_held_out(UptrainPlan& plan) {
  constexpr double kSeveral = 2.0;
  std::error_code missing;
  for (const UptrainPlan::Source& source : plan.sources) {
    if (std::filesystem::equivalent(source.path, plan.settings.eval_data, missing)) {
      plan.notes.push_back(fmt::format(
          "--eval-data is {}, which the run trains on: its loss shows nothing of other text",
          source.name));
    }
  }
  const double most = std::ranges::max(plan.sources, {}, &UptrainPlan::Source::epochs).epochs;
  if (most < kSeveral || !plan.settings.eval_data.empty()) {
    return;
  }
  plan.notes.push_back(fmt::format(
      "this run reads a text {:.1f} times, and its loss will not show if the model only "
      "memorises it: --eval-data measures other text{}",
      most,
      plan.settings.trained == TrainedWeights::kAll ? ", and --train attention memorises less"
                                                    : ""));
}

// α in steps is the paper's only if they have as many tokens as those of the pretraining.
void advise_length(UptrainPlan& plan, const ModelSpec& spec) {
  const UptrainSettings& settings = plan.settings;
  const auto published = published_pretraining(spec);
  if (!published || !settings.alpha || !settings.pretrain_steps) {
    return;
  }
  const double share = static_cast<double>(plan.tokens) / static_cast<double>(published->tokens);
  if (share < *settings.alpha / 2) {
    plan.notes.push_back(fmt::format(
        "this run trains on {:.1g} of the tokens of the pretraining, not on {:g}: the {:g} billion "
        "of {} came in larger steps; without --pretrain-steps, --alpha counts tokens",
        share, *settings.alpha, static_cast<double>(published->tokens) / 1e9, published->model));
  }
}

// Numbers that are allowed and probably slips.
void advise_size(UptrainPlan& plan) {
  constexpr double kUsual = 0.05;  // rates above it destroy a pretrained model with AdamW
  const UptrainSettings& settings = plan.settings;
  if (settings.alpha && *settings.alpha > 1.0) {
    plan.warnings.push_back(fmt::format(
        "--alpha {0:g} trains {0:g} times as long as the whole pretraining; the paper's is 0.05",
        *settings.alpha));
  }
  if (settings.learning_rate && *settings.learning_rate > kUsual &&
      settings.optimizer.kind == OptimizerKind::kAdamW) {
    plan.warnings.push_back(
        fmt::format("--lr {:g} is far above what pretrained models survive; usual are 1e-5 to 1e-3",
                    *settings.learning_rate));
  }
}

void plan_length(UptrainPlan& plan, const DataLoader& data) {
  UptrainSettings& settings = plan.settings;
  plan.sequence_length = data.sequence_length();
  plan.tokens_per_step = product_of({settings.batch, settings.accumulation, plan.sequence_length});
  plan.filled = data.filled();
  const std::int64_t steps =
      steps_of(settings, std::llround(static_cast<double>(plan.tokens_per_step) * plan.filled));
  plan.tokens = product_of({steps, plan.tokens_per_step});
  plan.schedule = schedule_of(settings, steps);
  plan.rate_trials = trials_of(settings, steps, data);
  if (wants_trials(settings, steps) && !plan.rate_trials) {
    plan.notes.emplace_back(
        "no trials of learning rates, since the text is too short for them: the run takes the "
        "usual rate, and --lr another");
  }
  settings.sequence_length = plan.sequence_length;
  settings.found_rate = settings.found_rate || plan.rate_trials.has_value();
  take_schedule(settings, plan.schedule);
}

void plan_task(UptrainPlan& plan, const Model& source) {
  UptrainSettings& settings = plan.settings;
  settings.task = with_special_tokens(settings.task, source);
  settings.task.seed = settings.seed;
  plan.task = make_training_task(settings.task, source.spec, plan.sequence_length);
  check_documents(settings.documents, plan.task);
  settings.task.objective = plan.task.objective;
  plan.recipe = recipe_of(settings);
  add_task(plan.recipe, plan.task);
  if (plan.rate_trials) {
    plan.recipe["learning_rate"] = nullptr;
  }
}

// Throws kUsage if ranks cannot share the sequences as the settings say.
void check_sequences(const UptrainPlan& plan, const ModelSpec& spec, const ModelSpec* teacher) {
  const std::int64_t ranks = plan.settings.sequence_ranks;
  if (ranks == 1) {
    return;
  }
  if (plan.sequence_length % ranks != 0) {
    throw_usage("windows of {} tokens cannot be shared by {} ranks: allowed are multiples of {}",
                plan.sequence_length, ranks, ranks);
  }
  check_takes_parts(spec);
  if (teacher != nullptr) {
    check_takes_parts(*teacher);
  }
}

// The sequence length: as set, else 1024, or the model's number of positions if less. Throws kUsage
// if a model with learned positions has fewer.
std::int64_t sequence_length_of(const UptrainSettings& settings, const ModelSpec& spec) {
  const std::int64_t limit = spec.max_positions.value_or(kDefaultSequence);
  // Text infilling adds a token that ends the text.
  const bool infills = spec.has_encoder() && spec.denoising == Denoising::kTextInfilling;
  const std::int64_t usual = std::min(kDefaultSequence, infills ? limit - 1 : limit);
  const std::int64_t length = settings.sequence_length.value_or(usual);
  if (spec.has_position_table() && length > limit) {
    throw_usage("context is {}, the model has {} positions for {}", length, name_of(spec.positions),
                limit);
  }
  return length;
}

// The forward pass takes a third of the operations of training. A file that cannot be read is
// refused where all ranks can say so.
void plan_evaluations(UptrainPlan& plan, const ModelSpec& spec) {
  const UptrainSettings& settings = plan.settings;
  if (settings.eval_data.empty() || !path_exists(settings.eval_data)) {
    return;
  }
  const std::int64_t context = plan.sequence_length;
  const std::int64_t windows =
      evaluation_windows(TokenFile::open(settings.eval_data), evaluation_settings(plan), spec);
  const std::int64_t every = settings.eval_every > 0 ? settings.eval_every : plan.schedule.steps;
  UptrainPlan::Evaluations& all = plan.evaluations.emplace();
  all.count = 1 + (plan.schedule.steps + every - 1) / every;
  all.tokens = std::min(windows * context, settings.eval_max_tokens.value_or(windows * context));
  all.flops = training_flops_per_token(spec, plan.task, context) / 3.0 *
              static_cast<double>(all.count * all.tokens);
}

// Whether the host has memory for a copy of its ranks' parts of the state, in addition to what
// training takes of it. A tenth is left for other processes.
bool has_memory_for_copy(const UptrainPlan& plan) {
  const MemoryNeed& need = plan.memory_choice.chosen().need;
  const double training = plan.settings.device.is_cpu() ? need.device : need.host;
  const std::optional<double> available = available_memory(c10::Device(c10::kCPU));
  const auto parts = static_cast<double>(plan.settings.sharing_ranks());
  const double here = std::min(static_cast<double>(plan.settings.local_ranks), parts);
  const double copies = plan.state_bytes * here / parts;
  return available && training + copies < 0.9 * *available;
}

TrainingMemory memory_with_teacher(const UptrainSettings& settings, const ModelSpec& spec,
                                   const ModelSpec* teacher, const Task& task,
                                   std::int64_t sequence_length) {
  TrainingMemory memory = training_memory(settings, spec, task, sequence_length);
  if (settings.teacher.present() && teacher != nullptr) {
    memory.teacher = teacher_bytes(settings, *teacher, task, sequence_length);
  }
  return memory;
}

void take_memory_mode(UptrainPlan& plan, MemoryMode mode, const ModelSpec& spec,
                      const ModelSpec* teacher) {
  plan.memory_choice.mode = mode;
  plan.settings.memory = mode;
  plan.memory = memory_with_teacher(plan.settings, spec, teacher, plan.task, plan.sequence_length);
  plan.background_saving = has_memory_for_copy(plan);
}

// The sharding that needs the least memory among those that the ranks chose.
Sharding leanest_sharding(const Sharding& own, ProcessGroup& group) {
  std::optional<Sharding> leanest;
  for (const std::string& text : group.exchange(Json{own.weights, own.copies}.dump())) {
    const Json other = Json::parse(text);
    const Sharding theirs{.weights = other[0], .copies = other[1]};
    if (!leanest || (theirs.weights && (!leanest->weights || theirs.copies < leanest->copies))) {
      leanest = theirs;
    }
  }
  return leanest.value();
}

// Fills in the memory that the run needs and has, what ranks hold, the memory mode, options that
// need less, whether states are saved in the background, and what travels between ranks. `teacher`
// is null without one.
void weigh_memory(UptrainPlan& plan, const ModelSpec& spec, const ModelSpec* teacher) {
  const auto need_of = [&](const UptrainSettings& settings) {
    return memory_needed(settings, spec, teacher, plan.task, plan.sequence_length);
  };
  plan.memory_free = free_memory(plan.settings.device);
  plan.sharding_choice = choose_sharding(plan.settings, plan.memory_free, need_of);
  plan.memory_choice = plan.sharding_choice.of(plan.settings.sharding).memory;
  plan.shortage = shortage_of(plan.settings, plan.memory_choice, plan.memory_free, need_of);
  take_memory_mode(plan, plan.memory_choice.mode, spec, teacher);
  plan.traffic = training_traffic(plan.settings, spec, teacher, plan.sequence_length);
}

}  // namespace

void take_rate(UptrainPlan& plan, double rate) {
  plan.settings.learning_rate = rate;
  plan.schedule.peak = rate;
  plan.recipe["learning_rate"] = rate;
  plan.rate_trials.reset();
}

void add_task(Json& recipe, const Task& task) {
  recipe["objective"] = name_of(task.objective);
  const bool hides = hides_spans(task.objective);
  if (hides || task.objective == Objective::kMaskedTokens) {
    const bool counts_down = task.objective == Objective::kSpanCorruption;
    recipe[counts_down ? "first_sentinel" : "mask_token"] = task.hiding.token;
  }
  if (hides) {
    recipe["end_token"] = or_null(task.hiding.end_token);
  }
}

void take_published_length(UptrainSettings& settings) {
  if (!settings.alpha || settings.steps || settings.pretrain_steps || settings.pretrain_tokens) {
    return;
  }
  if (const auto found = published_pretraining(open_model_outline(settings.model).spec)) {
    settings.pretrain_tokens = found->tokens;
    settings.published = fmt::format("{}, {}", found->model, found->source);
  }
}

DataLoader open_training_data(const UptrainSettings& settings, const ModelSpec& spec,
                              const std::string& name) {
  return {settings.data,
          sequence_length_of(settings, spec),
          spec.vocab_size,
          settings.seed,
          settings.data_weights,
          settings.documents,
          name};
}

EvaluationSettings evaluation_settings(const UptrainPlan& plan) {
  return {.context = plan.sequence_length,
          .batch = plan.settings.batch,
          .max_tokens = plan.settings.eval_max_tokens,
          .task = plan.settings.task,
          .documents = plan.settings.documents};
}

Model open_teacher(const UptrainSettings& settings, const Model& student) {
  Model teacher = open_predicting_model(settings.teacher.model);
  const std::string where = printable_path(settings.teacher.model);
  if (teacher.spec.vocab_size != student.spec.vocab_size) {
    throw_bad_input("{}: the teacher's vocabulary has {} tokens, the model's {}", where,
                    teacher.spec.vocab_size, student.spec.vocab_size);
  }
  if (objective_of(teacher.spec) != objective_of(student.spec)) {
    throw_bad_input("{}: the teacher predicts {}, the model {}", where,
                    name_of(objective_of(teacher.spec)), name_of(objective_of(student.spec)));
  }
  UptrainSettings as_student = settings;
  as_student.sequence_length = sequence_length_of(settings, student.spec);
  sequence_length_of(as_student, teacher.spec);  // throws if the teacher has too few positions
  return teacher;
}

MemoryNeed memory_needed(const UptrainSettings& settings, const ModelSpec& spec,
                         const ModelSpec* teacher, const Task& task, std::int64_t sequence_length) {
  const TrainingMemory memory = memory_with_teacher(settings, spec, teacher, task, sequence_length);
  const auto ranks = static_cast<double>(settings.local_ranks);
  return settings.device.is_cpu() ? MemoryNeed{memory.total() * ranks, 0.0}
                                  : MemoryNeed{memory.total(), memory.host * ranks};
}

UptrainPlan plan_uptraining(const UptrainSettings& settings, const Model& source,
                            const DataLoader& data) {
  settings.validate();
  check_writable(source);
  refuse_output_inside(source, settings.output);
  UptrainPlan plan;
  plan.warnings = source.spec.contradictions;
  plan.settings = settings;
  if (std::string left = text_of_left_tokenizer(source); !left.empty()) {
    plan.warnings.push_back(std::move(left));
  }
  plan.notes = notes_on_companions(source);
  append(plan.notes, with_kept_code(source, source.config_text).notes);
  plan_length(plan, data);
  plan_task(plan, source);
  plan.recipe["data_digest"] = data.digests();
  if (settings.documents.separate) {
    plan.recipe["documents_digest"] = data.document_digests();
  }
  plan.data_tokens = data.tokens();
  plan.epochs = static_cast<double>(plan.schedule.steps * settings.batch * settings.accumulation) /
                static_cast<double>(data.windows());
  plan.sources = sources_of(plan, data);
  plan.parameters = count_parameters(source.spec);
  plan.flops = training_flops_per_token(source.spec, plan.task, plan.sequence_length) *
               static_cast<double>(plan.tokens);
  plan.state_bytes = saved_state_bytes(settings, source.spec);
  std::optional<Model> teacher;
  if (settings.teacher.present()) {
    add_teacher(plan, teacher.emplace(open_teacher(settings, source)));
  } else if (settings.teacher.any()) {
    add_answers(plan, source, data);
  }
  plan_evaluations(plan, source.spec);
  advise_teacher(plan, source);
  advise_held_out(plan);
  advise_length(plan, source.spec);
  advise_size(plan);
  check_sequences(plan, source.spec, teacher ? &teacher->spec : nullptr);
  weigh_memory(plan, source.spec, teacher ? &teacher->spec : nullptr);
  if (const std::string warning = warning_of_positions(source, plan.sequence_length);
      !warning.empty()) {
    plan.notes.push_back(warning);
  }
  return plan;
}

void agree_on_memory(UptrainPlan& plan, const Model& source, ProcessGroup& group) {
  const std::optional<Model> teacher = plan.settings.teacher.present()
                                           ? std::optional(open_teacher(plan.settings, source))
                                           : std::nullopt;
  const ModelSpec* teacher_spec = teacher ? &teacher->spec : nullptr;
  const Sharding leanest = leanest_sharding(plan.settings.sharding, group);
  if (plan.sharding_choice.automatic && leanest != plan.settings.sharding) {
    plan.settings.sharding = leanest;
    plan.memory_choice = plan.sharding_choice.of(leanest).memory;
    plan.sharding_agreed = true;
    take_memory_mode(plan, plan.memory_choice.mode, source.spec, teacher_spec);
    plan.traffic = training_traffic(plan.settings, source.spec, teacher_spec, plan.sequence_length);
  }
  MemoryMode mode = plan.memory_choice.mode;
  for (const std::string& other : group.exchange(std::string(name_of(mode)))) {
    mode = std::max(mode, parse_memory_mode(other));  // from the most memory to the least
  }
  if (plan.memory_choice.automatic && mode != plan.memory_choice.mode) {
    take_memory_mode(plan, mode, source.spec, teacher_spec);
  }
}

}  // namespace regroup
