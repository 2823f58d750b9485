#include <algorithm>
#include <vector>

#include "cli/measure/made_tokens.h"
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
#include "uptrain/train/run_directory.h"

namespace regroup {
namespace {

DistillSettings distill_settings(const ConvertOptions& options) {
  DistillSettings settings;
  settings.run.sequence_length = options.refit.context;
  settings.run.batch = options.refit.batch;
  settings.run.device = parse_device(options.device);
  return settings;
}

// Digests of the tokens tell another tokenizer, text or share of the source's own.
DistillStates states_of(const ConversionPlan& plan, const PreparedText& text,
                        const ConvertOptions& options, const Console& console) {
  DistillStates states;
  states.output = options.destination;
  states.resume = options.text.resume;
  states.recipe = {{"text", digest_of_file(text.learning) + digest_of_file(text.judging)},
                   {"context", text.context},
                   {"batch", options.refit.batch},
                   {"steps", text.distill_steps},
                   {"kv_heads", plan.grouped.kv_heads},
                   {"architecture", plan.target.architecture},
                   {"positions", name_of(plan.target.positions)},
                   {"pool", name_of(plan.request.pooling.method)},
                   {"grouping", plan.request.grouping},
                   {"distill_lr", options.text.distill_rate.value_or(0.0)},
                   {"distill_attention", options.text.distill_attention.value_or(-1.0)}};
  if (!text.own.empty()) {
    states.files = {text.own, std::filesystem::path(text.own).replace_extension(".idx")};
  }
  states.warn = [&console](const std::string& fault) { console.note("warning: " + fault); };
  return states;
}

bool repeats_heads(const ConversionPlan& plan) {
  return std::ranges::any_of(plan.target.roles(), [&](AttentionRole role) {
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
                              const ConvertOptions& options) {
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
  const DistillSettings settings = distill_settings(options);
  const MemoryNeed need = distill_memory(source, source.spec, settings);
  return free_memory(settings.run.device).holds(need)
             ? ""
             : fmt::format("it takes about {} of memory, more than is free",
                           text_of_bytes(need.device + need.host));
}

double bytes_to_distill(const Model& source, const ConvertOptions& options) {
  const MemoryNeed need = distill_memory(source, source.spec, distill_settings(options));
  return need.device + need.host;
}

Recipe distillation_recipe(const PreparedText& text, const ConvertOptions& options) {
  Recipe recipe{.tokens = text.windows * text.context,
                .context = text.context,
                .batch = options.refit.batch,
                .steps = text.distill_steps};
  if (text.own_windows > 0) {
    recipe.own_tokens = text.own_windows * text.context;
  }
  return recipe;
}

void forget_distillation(const Model& source, const std::string& destination) {
  if (RunDirectory::exists(destination)) {
    RunDirectory::join(destination, Json(), fingerprint_of(source))
        .remove(std::vector<std::string>{kOwnText, "own.idx"});
  }
}

DistillOutcome distill_on_text(const Model& source, const ConversionPlan& plan,
                               const PreparedText& text, const ConvertOptions& options,
                               const std::filesystem::path& result, const Console& console) {
  DistillSettings settings = distill_settings(options);
  settings.run.data = {text.learning};
  settings.run.eval_data = text.judging;
  settings.run.steps = text.distill_steps;
  settings.relative_rate = options.text.distill_rate;
  settings.attention_weight = options.text.distill_attention;
  settings.frame = text.frame;
  settings.states = states_of(plan, text, options, console);
  const std::vector<std::string> tensors =
      mapped(checksums_to_come(plan), [](const auto& to_come) { return to_come.first; });
  Progress progress(console, "distill", text.distill_steps, "steps");
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
