#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/measure/text_conversion.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "converter/convert/model_card.h"
#include "converter/convert/tensor_parts.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/tensors/checkpoint_writer.h"
#include "uptrain/model/device.h"
#include "uptrain/run/distill.h"
#include "uptrain/run/sample.h"
#include "uptrain/run/training_speed.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

DistillSettings settings_of(const Model& source, const RefitOptions& options) {
  DistillSettings settings;
  settings.context = context_of(source, options);
  settings.batch = options.batch;
  settings.device = parse_device(options.device);
  return settings;
}

bool repeats_heads(const ConversionPlan& plan) {
  const auto roles = plan.target.roles();
  return std::any_of(roles.begin(), roles.end(), [&](AttentionRole role) {
    return plan.target.kv_heads_of(role) != plan.grouped.kv_heads_of(role);
  });
}

// Adds the outcome to the record in `path`, with the checksums of the tensors as they are now. A
// GGUF file records no measurements.
void record(const std::filesystem::path& path, const ModelSpec& spec, const DistillOutcome& outcome,
            const std::vector<std::string>& tensors) {
  const Model result = open_model(path);
  TensorChecksums checksums;
  for (const std::string& tensor : tensors) {
    checksums[tensor] = stored_checksum(result.checkpoint, result.checkpoint.at(tensor));
  }
  if (result.gguf) {
    overwrite_metadata(path, result.checkpoint.tensors().size(), *result.gguf,
                       gguf_with_checksums(*result.gguf, checksums));
    return;
  }
  ConversionRecord facts;
  facts.checksums = checksums;
  facts.distilled = outcome;
  rewrite_record(path, spec, config_with_facts(result.config_text, facts));
}

}  // namespace

std::string why_not_distilled(const Model& source, const ConversionPlan& plan,
                              const RefitOptions& options) {
  if (!can_refit(source.spec)) {
    return fmt::format("{} normalises keys with separate weights for each head",
                       printable(source.spec.architecture));
  }
  if (plan.container == Container::kTorch) {
    return "only a result in safetensors or GGUF can be trained; do it in two steps: the same "
           "command without --to torch, then regroup convert RESULT OUTPUT --to torch";
  }
  if (repeats_heads(plan)) {
    return "the result stores each head several times; convert without --target expanded first";
  }
  const DistillMemory memory = distill_memory(source, source.spec, settings_of(source, options));
  return memory.fits() ? ""
                       : fmt::format("it takes about {} of memory, more than is free",
                                     text_of_bytes(memory.need.device + memory.need.host));
}

namespace {

// A stage that passes `tokens` through the model takes `work` times as long for each as a large
// matrix product of as many operations (measured with SmolLM2-135M on a CPU).
struct Stage {
  std::string_view label;
  std::int64_t tokens;
  double work;
};

std::array<Stage, 5> stages_with(const PreparedText& text, std::int64_t batch,
                                 std::int64_t calibrated, std::int64_t refit_steps) {
  const std::int64_t step = batch * text.context;
  return {{{"sample", (text.own_windows + text.own_held_out) * text.context, 4.4},
           {"calibrate", calibrated, 1.8},
           {"refit", refit_steps * step, 2.0},
           {"distill", text.distill_steps * step, 7.5},
           {"evaluate", (text.held_out + text.own_held_out) * text.context, 7.5}}};
}

// On a GPU, a step of writing takes this long for each layer (measured on an H100), however fast
// products are.
double least_seconds_of_writing(const Model& source, std::int64_t tokens) {
  constexpr double kSecondsOfLayer = 1.4e-4;
  const double steps = static_cast<double>(tokens) / static_cast<double>(SampleSettings().batch);
  return steps * kSecondsOfLayer * static_cast<double>(source.spec.layer_count());
}

}  // namespace

std::string expected_cost(const Model& source, const RefitOptions& options,
                          const PreparedText& text, bool calibrates, std::int64_t refit_steps) {
  const c10::Device device = parse_device(options.device);
  set_compute_threads(options.threads);
  const double product = matmul_flops_per_second(scalar_type_of(fast_precision(device)), device);
  const Task task = evaluation_task(source, text.context).value_or(Task{});
  const double pass = training_flops_per_token(source.spec, task, text.context) / 3;
  const std::int64_t calibrated =
      std::min((text.windows + text.own_windows) * text.context, calibration_tokens(source.spec));
  double total = 0.0;
  std::vector<std::string> parts;
  for (const Stage& stage :
       stages_with(text, options.batch, calibrates ? calibrated : 0, refit_steps)) {
    double seconds = static_cast<double>(stage.tokens) * stage.work * pass / product;
    if (stage.label == "sample" && !device.is_cpu()) {
      seconds = std::max(seconds, least_seconds_of_writing(source, stage.tokens));
    }
    total += seconds;
    if (stage.tokens > 0) {
      parts.push_back(fmt::format("{} {}", stage.label, text_of_duration(seconds)));
    }
  }
  std::string expected =
      fmt::format("about {} ({})", text_of_duration(total), fmt::join(parts, ", "));
  if (text.distill_steps > 0) {
    const MemoryNeed need = distill_memory(source, source.spec, settings_of(source, options)).need;
    expected += fmt::format("; {} of memory", text_of_bytes(need.device + need.host));
  }
  return expected;
}

Recipe distillation_recipe(const PreparedText& text, const RefitOptions& options) {
  Recipe recipe{.tokens = text.windows * text.context,
                .context = text.context,
                .batch = options.batch,
                .steps = text.distill_steps};
  if (text.own_windows > 0) {
    recipe.own_tokens = text.own_windows * text.context;
  }
  return recipe;
}

DistillOutcome distill_on_text(const Model& source, const ConversionPlan& plan,
                               const PreparedText& text, const RefitOptions& options,
                               const std::filesystem::path& result, const Console& console) {
  DistillSettings settings = settings_of(source, options);
  settings.data = text.learning;
  settings.held_out = text.judging;
  settings.steps = text.distill_steps;
  settings.learning_rate = text.distill_rate;
  settings.attention_weight = text.distill_attention;
  std::vector<std::string> tensors;
  for (const auto& [name, checksum] : checksums_to_come(plan)) {
    tensors.push_back(name);
  }
  Progress progress(console, "distill", settings.steps, "steps");
  const DistillReport report = distill(
      source, open_model(result), tensors, settings,
      [&](bool trial, const StepReport& step) {
        const std::string loss = fmt::format("loss {:.4f}", step.loss);
        progress.update(trial ? 0 : step.step, trial ? "trial of a learning rate, " + loss : loss);
      },
      interrupt_requested());
  progress.finish();
  DistillOutcome outcome{.learning_rate = report.learning_rate,
                         .relative_learning_rate = report.relative_rate,
                         .attention_weight = report.attention_weight,
                         .measure = report.of_predictions ? "kl_divergence" : "hidden_state_error",
                         .before = report.before,
                         .after = report.after,
                         .kept = report.improved()};
  record(result, plan.target, outcome, tensors);
  return outcome;
}

}  // namespace regroup
