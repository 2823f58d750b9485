#include "uptrain/uptrain_plan.h"

#include <algorithm>
#include <cmath>

#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/printable.h"
#include "uptrain/loss.h"
#include "uptrain/objective.h"

namespace regroup {
namespace {

constexpr std::int64_t kDefaultSequence = 1024;

void refuse_untrainable(const ModelSpec& spec) {
  if (objective_of(spec) != Objective::kNextToken) {
    throw_bad_input("{}: uptraining knows decoder-only models, this one {}",
                    printable(spec.architecture),
                    spec.has_encoder() ? "has an encoder as well" : "is an encoder");
  }
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
  const std::int64_t warmup = settings.warmup_steps.value_or(std::max<std::int64_t>(1, steps / 50));
  if (warmup >= steps && settings.warmup_steps && steps > 1) {
    throw_usage("warm-up of {} steps in a run of {}: allowed are fewer than the run has", warmup,
                steps);
  }
  return std::min(warmup, steps);
}

// What a block keeps for its backward pass, in elements per token: the residual stream and the
// norms around it, the heads before and after rotation, attention's output, the MLP's insides.
double kept_per_token(const ModelSpec& spec) {
  double kept = 0.0;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerTensors& layer = spec.layers[i];
    if (layer.attention.present()) {
      const std::int64_t heads = 2 * (spec.query_heads + 2 * spec.kv_heads[i]) + spec.query_heads;
      kept += static_cast<double>(3 * spec.hidden_size + heads * spec.head_dim);
    }
    if (layer.up.present()) {
      const std::int64_t width =
          layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
      kept += static_cast<double>(3 * spec.hidden_size + 4 * width);
    }
  }
  return kept;
}

double memory_of(const UptrainSettings& settings, const ModelSpec& spec, std::int64_t sequence) {
  const bool bf16 = settings.precision == Precision::kBf16;
  // fp32: weights, gradients, two moments. bf16: these, and the model's own weights and gradients.
  const double per_parameter = bf16 ? 4 + 4 + 8 + 2 + 2 : 4 + 4 + 8;
  const auto tokens = static_cast<double>(settings.batch * sequence);
  const double activations = tokens * kept_per_token(spec) * (bf16 ? 2 : 4);
  const double logits =
      3.0 * 4.0 *
      std::min(static_cast<double>(kLogitsPerChunk), tokens * static_cast<double>(spec.vocab_size));
  return static_cast<double>(count_parameters(spec)) * per_parameter + activations + logits;
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
  refuse_untrainable(spec);
  return {settings.data, sequence_length_of(settings, spec), spec.vocab_size, settings.seed};
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

double training_flops_per_token(const ModelSpec& spec, std::int64_t sequence_length) {
  std::int64_t multiplied = count_parameters(spec);
  if (!spec.position_embedding.empty()) {
    multiplied -= (spec.max_positions.value_or(0) + spec.position_offset) * spec.hidden_size;
  }
  if (!spec.lm_head.empty()) {
    multiplied -= spec.vocab_size * spec.embedding_width();
  }
  const auto attending =
      std::count_if(spec.layers.begin(), spec.layers.end(),
                    [](const LayerTensors& layer) { return layer.attention.present(); });
  const std::int64_t attention = attending * spec.query_heads * spec.head_dim * sequence_length;
  return 6.0 * static_cast<double>(multiplied) + 6.0 * static_cast<double>(attention);
}

UptrainPlan plan_uptraining(const UptrainSettings& settings, const Model& source,
                            const TokenBatches& data) {
  settings.validate();
  check_writable(source);
  refuse_untrainable(source.spec);
  refuse_output_inside(source, settings.output);
  UptrainPlan plan;
  plan.settings = settings;
  plan.sequence_length = data.sequence_length();
  plan.tokens_per_step = settings.batch * settings.accumulation * plan.sequence_length;
  plan.steps = steps_of(settings, plan.tokens_per_step);
  plan.tokens = plan.steps * plan.tokens_per_step;
  plan.schedule = {settings.learning_rate, settings.min_learning_rate_ratio,
                   warmup_of(settings, plan.steps), plan.steps};

  plan.settings.steps = plan.steps;
  plan.settings.sequence_length = plan.sequence_length;
  plan.settings.warmup_steps = plan.schedule.warmup_steps;
  plan.recipe = recipe_of(plan.settings);

  plan.data_tokens = data.tokens();
  plan.epochs = static_cast<double>(plan.steps * settings.batch * settings.accumulation) /
                static_cast<double>(data.windows());
  plan.parameters = count_parameters(source.spec);
  plan.flops = training_flops_per_token(source.spec, plan.sequence_length) *
               static_cast<double>(plan.tokens);
  plan.memory_bytes = memory_of(settings, source.spec, plan.sequence_length);
  return plan;
}

}  // namespace regroup
