#include "uptrain/uptrain_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/printable.h"
#include "uptrain/loss.h"

namespace regroup {
namespace {

constexpr std::int64_t kDefaultSequence = 1024;

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
  const bool rises = settings.schedule != ScheduleKind::kInverseSqrt;
  const std::int64_t usual = rises ? std::max<std::int64_t>(1, steps / 50) : 0;
  const std::int64_t warmup = settings.warmup_steps.value_or(usual);
  if (warmup >= steps && settings.warmup_steps && steps > 1) {
    throw_usage("warm-up of {} steps in a run of {}: allowed are fewer than the run has", warmup,
                steps);
  }
  return std::min(warmup, steps);
}

Schedule schedule_of(const UptrainSettings& settings, std::int64_t steps) {
  Schedule schedule{.peak = settings.peak_learning_rate(),
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

// The settings with what was left open, as the plan has it.
UptrainSettings filled_in(UptrainSettings settings, const UptrainPlan& plan) {
  settings.steps = plan.steps;
  settings.sequence_length = plan.sequence_length;
  settings.warmup_steps = plan.schedule.warmup_steps;
  if (settings.schedule == ScheduleKind::kWarmupStableDecay) {
    settings.decay_steps = plan.schedule.decay_steps;
  }
  if (settings.schedule == ScheduleKind::kInverseSqrt) {
    settings.start_step = plan.schedule.start_step;
  }
  return settings;
}

// What a task adds to the recipe: the special tokens, where it needs any.
void add_task(Json& recipe, const Task& task) {
  recipe["objective"] = name_of(task.objective);
  if (task.objective == Objective::kMaskedTokens) {
    recipe["mask_token"] = task.masking.token;
  } else if (task.objective == Objective::kSpanCorruption) {
    recipe["first_sentinel"] = task.spans.first_sentinel;
    recipe["end_token"] = task.spans.end_token ? Json(*task.spans.end_token) : Json();
  }
}

// Tokens that pass through each stack for one window.
struct StackTokens {
  double encoder = 0.0, decoder = 0.0;
};

StackTokens tokens_of(const Task& task, std::int64_t sequence) {
  switch (task.objective) {
    case Objective::kContinuation:
      return {static_cast<double>(sequence / 2), static_cast<double>(sequence - sequence / 2)};
    case Objective::kSpanCorruption: {
      const SpanCounts counts = span_counts(sequence, task.spans.end_token.has_value());
      return {static_cast<double>(counts.source), static_cast<double>(counts.target)};
    }
    default: return {0.0, static_cast<double>(sequence)};
  }
}

// What a block keeps for its backward pass, in elements per token: the residual stream and the
// norms around it, the heads before and after rotation, attention's output, the MLP's insides.
double kept_per_token(const ModelSpec& spec, AttentionRole role) {
  double kept = 0.0;
  for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
    const LayerTensors& layer = spec.stack(role)[i];
    if (spec.attention(role, i).present()) {
      const std::int64_t around = role == AttentionRole::kCross ? 2 : 3;
      const std::int64_t heads =
          2 * (spec.query_heads + 2 * spec.kv_heads_of(role)[i]) + spec.query_heads;
      kept += static_cast<double>(around * spec.hidden_size + heads * spec.head_dim);
    }
    if (role != AttentionRole::kCross && layer.up.present()) {
      const std::int64_t width =
          layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
      kept += static_cast<double>(3 * spec.hidden_size + 4 * width);
    }
  }
  return kept;
}

std::int64_t attending_layers(const ModelSpec& spec, AttentionRole role) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
    count += spec.attention(role, i).present() ? 1 : 0;
  }
  return count;
}

double kept_per_window(const ModelSpec& spec, const StackTokens& tokens) {
  double kept = 0.0;
  for (const AttentionRole role : spec.roles()) {
    kept += kept_per_token(spec, role) *
            (role == AttentionRole::kEncoder ? tokens.encoder : tokens.decoder);
  }
  return kept;
}

double elements_of(const Shape& shape) {
  double elements = 1.0;
  for (const std::int64_t size : shape) {
    elements *= static_cast<double>(size);
  }
  return elements;
}

// Weights, and of those that are trained masters, gradients and the optimizer's state.
double memory_of_weights(const UptrainSettings& settings, const ModelSpec& spec) {
  const bool bf16 = settings.precision == Precision::kBf16;
  const std::vector<std::string> names = trained_tensors(spec, settings.trained);
  const std::set<std::string> trained(names.begin(), names.end());
  double bytes = 0.0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    const double elements = elements_of(tensor.shape);
    bytes += elements * (bf16 ? 2 : 4);
    if (trained.contains(tensor.name)) {
      bytes += elements * (bf16 ? 4 + 4 + 2 : 4);
      bytes += optimizer_state_bytes(settings.optimizer.kind, tensor.shape);
    }
  }
  return bytes;
}

double memory_of(const UptrainSettings& settings, const ModelSpec& spec, const Task& task,
                 std::int64_t sequence) {
  const auto batch = static_cast<double>(settings.batch);
  const double activations = batch * kept_per_window(spec, tokens_of(task, sequence)) *
                             (settings.precision == Precision::kBf16 ? 2 : 4);
  const double predictions = batch * static_cast<double>(predictions_in(task, sequence));
  const double chunks = settings.teacher.present() ? 6.0 : 3.0;  // of logits, at a time
  const double logits = chunks * 4.0 *
                        std::min(static_cast<double>(kLogitsPerChunk),
                                 predictions * static_cast<double>(spec.vocab_size));
  return memory_of_weights(settings, spec) + activations + logits;
}

// Masters and the optimizer's memory, in fp32.
double bytes_of_state(const UptrainSettings& settings, const ModelSpec& spec) {
  const std::vector<std::string> names = trained_tensors(spec, settings.trained);
  const std::set<std::string> trained(names.begin(), names.end());
  double bytes = 0.0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (trained.contains(tensor.name)) {
      bytes += 4 * elements_of(tensor.shape) +
               optimizer_state_bytes(settings.optimizer.kind, tensor.shape);
    }
  }
  return bytes;
}

double bytes_of_teacher(const UptrainSettings& settings, const ModelSpec& teacher) {
  const Precision precision = settings.teacher.precision.value_or(settings.precision);
  return static_cast<double>(count_parameters(teacher)) * (precision == Precision::kBf16 ? 2 : 4);
}

// Elements of the tensors of an encoder's blocks.
std::int64_t encoder_parameters(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LayerTensors& layer : spec.encoder_layers) {
    const AttentionLayout& attention = layer.attention;
    for (const LinearTensors& linear :
         {attention.q, attention.k, attention.v, attention.o, layer.gate, layer.up, layer.down}) {
      names.insert({linear.weight, linear.bias});
    }
    for (const NormTensors& norm : {layer.attention_norm, layer.mlp_norm}) {
      names.insert({norm.weight, norm.bias});
    }
    names.insert(layer.relative_bias);
  }
  double elements = 0.0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    elements += names.contains(tensor.name) ? elements_of(tensor.shape) : 0.0;
  }
  return static_cast<std::int64_t>(elements);
}

std::vector<UptrainPlan::Source> sources_of(const UptrainPlan& plan, const TokenBatches& data) {
  const std::int64_t samples = plan.tokens / plan.sequence_length;
  std::vector<UptrainPlan::Source> sources;
  for (std::size_t i = 0; i < data.files().size(); ++i) {
    sources.push_back({data.files()[i].path(), data.files()[i].size(), data.share_of(i),
                       data.passes_through(i, samples)});
  }
  return sources;
}

// A forward pass, a third of what training takes, and the weights.
void add_teacher(UptrainPlan& plan, const Model& teacher) {
  plan.recipe["teacher"] = fingerprint_of(teacher);
  plan.flops += training_flops_per_token(teacher.spec, plan.task, plan.sequence_length) *
                static_cast<double>(plan.tokens) / 3.0;
  plan.memory_bytes += bytes_of_teacher(plan.settings, teacher.spec);
}

}  // namespace

std::int64_t sequence_length_of(const UptrainSettings& settings, const ModelSpec& spec) {
  const std::int64_t limit = spec.max_positions.value_or(kDefaultSequence);
  const std::int64_t length = settings.sequence_length.value_or(std::min(kDefaultSequence, limit));
  if (spec.positions == PositionKind::kLearned && length > limit) {
    throw_usage("sequence length is {}, the model has learned positions for {}", length, limit);
  }
  return length;
}

TokenBatches open_training_data(const UptrainSettings& settings, const ModelSpec& spec) {
  return {settings.data, sequence_length_of(settings, spec), spec.vocab_size, settings.seed,
          settings.data_weights};
}

Model open_teacher(const UptrainSettings& settings, const Model& student) {
  Model teacher = open_computable_model(settings.teacher.model);
  const std::string where = printable(settings.teacher.model.string(), 0);
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
  sequence_length_of(as_student, teacher.spec);  // throws where it has too few positions
  return teacher;
}

std::int64_t count_parameters(const ModelSpec& spec) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) {
      elements *= size;
    }
    total += elements;
  }
  return total;
}

std::int64_t multiplied_weights(const ModelSpec& spec) {
  std::int64_t multiplied = count_parameters(spec);
  if (!spec.position_embedding.empty()) {
    multiplied -= (spec.max_positions.value_or(0) + spec.position_offset) * spec.hidden_size;
  }
  if (!spec.lm_head.empty()) {
    multiplied -= spec.vocab_size * spec.embedding_width();
  }
  return multiplied;
}

double training_flops_per_token(const ModelSpec& spec, const Task& task,
                                std::int64_t sequence_length) {
  const std::int64_t multiplied = multiplied_weights(spec);
  const auto attention = [&](AttentionRole role, double queries, double keys, double share) {
    return 12.0 * share * static_cast<double>(attending_layers(spec, role)) *
           static_cast<double>(spec.query_heads * spec.head_dim) * queries * keys;
  };
  const StackTokens tokens = tokens_of(task, sequence_length);
  const auto encoder = static_cast<double>(encoder_parameters(spec));
  double flops = 6.0 * encoder * tokens.encoder +
                 6.0 * (static_cast<double>(multiplied) - encoder) * tokens.decoder;
  flops += attention(AttentionRole::kSelf, tokens.decoder, tokens.decoder, spec.causal ? 0.5 : 1.0);
  if (spec.has_encoder()) {
    flops += attention(AttentionRole::kEncoder, tokens.encoder, tokens.encoder, 1.0) +
             attention(AttentionRole::kCross, tokens.decoder, tokens.encoder, 1.0);
  }
  return flops / static_cast<double>(sequence_length);
}

UptrainPlan plan_uptraining(const UptrainSettings& settings, const Model& source,
                            const TokenBatches& data) {
  settings.validate();
  check_writable(source);
  refuse_output_inside(source, settings.output);
  const ModelSpec& spec = source.spec;
  UptrainPlan plan;
  plan.sequence_length = data.sequence_length();
  plan.tokens_per_step = settings.batch * settings.accumulation * plan.sequence_length;
  plan.steps = steps_of(settings, plan.tokens_per_step);
  plan.tokens = plan.steps * plan.tokens_per_step;
  plan.schedule = schedule_of(settings, plan.steps);
  plan.settings = filled_in(settings, plan);
  plan.settings.task = with_special_tokens(settings.task, source);
  plan.settings.task.seed = settings.seed;
  plan.task =
      make_task(plan.settings.task, spec, training_objective_of(spec), plan.sequence_length);
  plan.settings.task.objective = plan.task.objective;
  plan.recipe = recipe_of(plan.settings);
  add_task(plan.recipe, plan.task);

  plan.data_tokens = data.tokens();
  plan.epochs = static_cast<double>(plan.steps * settings.batch * settings.accumulation) /
                static_cast<double>(data.windows());
  plan.sources = sources_of(plan, data);
  plan.parameters = count_parameters(spec);
  plan.flops = training_flops_per_token(spec, plan.task, plan.sequence_length) *
               static_cast<double>(plan.tokens);
  plan.memory_bytes = memory_of(settings, spec, plan.task, plan.sequence_length);
  plan.memory_available = available_memory(settings.device);
  plan.state_bytes = bytes_of_state(settings, spec);
  if (settings.teacher.present()) {
    add_teacher(plan, open_teacher(settings, source));
  }
  return plan;
}

}  // namespace regroup
