#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands/convert_options.h"
#include "cli/measure/compute_functions.h"
#include "cli/report/conversion_report.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/text.h"
#include "converter/convert/execute_plan.h"
#include "converter/convert/model_card.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/model/model_directory.h"

namespace regroup {
namespace {

// Whether a change of basis is possible, so that heads can be solved for.
bool can_solve(const ModelSpec& spec) { return !spec.clip_qkv && spec.not_computable.empty(); }

void check_something_is_pooled(const Model& source, const ConversionRequest& request,
                               const ConvertOptions& options) {
  if (options.budget.budget.empty() && pooled_layers(plan_conversion(source, request)).empty()) {
    refuse_without_effect("--text", "no layer gets fewer kv heads");
  }
}

// Refuses options of refitting if nothing is refitted.
void check_refit_options(const Model& source, const ConvertOptions& options) {
  const bool refits =
      options.given("--refit-steps") || compute_for("--text").refits_by_default(options.text);
  if (refits && can_refit(source.spec)) {
    return;
  }
  const bool batches = options.text.distills() || options.given("--kv-budget");
  for (const char* option : {"--refit-steps", "--refit-lr", "--refit-batch"}) {
    if (options.given(option) && !(batches && option == std::string_view("--refit-batch"))) {
      refuse_without_effect(
          option, refits ? "this model cannot be refitted" : "refitting needs --refit-steps here");
    }
  }
}

// Sets what --text implies for refitting, unless it is given.
void refit_on(const PreparedText& text, const ModelSpec& spec, ConvertOptions& options,
              const Console& console) {
  if (!options.given("--refit-steps") && text.refit_steps == 0) {
    return;
  }
  if (!can_refit(spec)) {
    console.note(fmt::format(
        "note: --text: no refitting: {} normalises keys with separate weights for each head",
        printable(spec.architecture)));
    return;
  }
  options.refit.data = text.tokens;
  if (!options.given("--refit-steps")) {
    options.refit.steps = text.refit_steps;
  }
  // Refitting keeps the hidden states of all its tokens: more than its steps read are of no use.
  const std::int64_t read = options.refit.steps * options.refit.batch * text.context;
  options.refit.max_tokens = std::min(text.windows * text.context, read + read / 4);
}

// Decides on distillation. It needs much memory, so that only --distill-steps insists on it.
void choose_distillation(const Model& source, const ConversionRequest& request,
                         ConvertOptions& options, const Console& console) {
  if (!options.text.distills()) {
    return;
  }
  const std::string reason = compute_for("--text").why_not_distilled(
      source, plan_conversion(source, request), options.refit);
  if (reason.empty()) {
    return;
  }
  if (options.given("--distill-steps")) {
    throw_usage("--distill-steps: no distillation: {}", reason);
  }
  console.note(fmt::format("warning: --text: no distillation, which gains most: {}", reason));
  options.text.distill_steps = 0;
}

bool calibrates(const ConversionRequest& request, const ConvertOptions& options) {
  return options.calibration.empty() &&
         (needs_solver(request.pooling.method) || options.measure || options.grouping == "similar");
}

bool checks_text(const ConvertOptions& options) {
  return !options.any_text && !options.text.samples;
}

// The labels of what shows its progress.
std::vector<std::string> stages_of(const Model& source, const ConversionRequest& request,
                                   const ConvertOptions& options) {
  const bool refits =
      can_refit(source.spec) &&
      (options.given("--refit-steps") || compute_for("--text").refits_by_default(options.text));
  const ComputeFunctions& compute = compute_for("--text");
  const bool mixes = compute.own_share_of(source, options.text) > 0.0;
  const std::pair<const char*, bool> all[] = {{"sample", options.text.samples},
                                              {"check text", checks_text(options)},
                                              {"sample", mixes},
                                              {"calibrate", calibrates(request, options)},
                                              {"measure", !options.budget.budget.empty()},
                                              {"group", options.grouping == "similar"},
                                              {refits ? "refit" : "convert", true},
                                              {"distill", options.text.distills()},
                                              {"evaluate", true},
                                              {"answer", compute.answers_questions(source)}};
  std::vector<std::string> stages;
  for (const auto& [label, there] : all) {
    if (there && !options.dry_run) {
      stages.emplace_back(label);
    }
  }
  return stages;
}

// What is going to be done with the text.
std::string work_on(const PreparedText& text, const ConvertOptions& options) {
  const auto tokens_in = [&](std::int64_t windows) {
    return with_thousands(static_cast<std::uint64_t>(windows * text.context));
  };
  const std::string refit =
      options.refit.data.empty()
          ? ""
          : fmt::format("; refitting: {} steps for each attention", options.refit.steps);
  const std::string distillation =
      text.distill_steps == 0 ? "" : fmt::format("; distillation: {} steps", text.distill_steps);
  const std::string own =
      text.own_windows == 0
          ? ""
          : fmt::format(", {} of them written by the source{}", tokens_in(text.own_windows),
                        text.chat ? " as chats (" + text.chat->name + ")" : "");
  return fmt::format("text      {} tokens to convert with{}; {} held out{}{}",
                     tokens_in(text.windows), own, tokens_in(text.held_out), refit, distillation);
}

}  // namespace

std::optional<PreparedText> use_text(const Model& source, ConversionRequest& request,
                                     ConvertOptions& options, Console& console) {
  if (!options.text.given()) {
    return std::nullopt;
  }
  check_something_is_pooled(source, request, options);
  if (!options.given("--pool") && can_solve(source.spec)) {
    request.pooling.method = PoolMethod::kLowrank;
  }
  if (options.given("--refit-tokens")) {
    options.text.tokens = options.refit.max_tokens;
  }
  choose_distillation(source, request, options, console);
  for (const char* option : {"--distill-lr", "--distill-attention"}) {
    if (options.given(option) && !options.text.distills()) {
      refuse_without_effect(option, "nothing is distilled");
    }
  }
  check_refit_options(source, options);
  console.set_stages(stages_of(source, request, options));
  const ComputeFunctions& compute = compute_for("--text");
  PreparedText text =
      compute.prepare_text(source, options.text, options.refit, options.destination, console);
  const std::int64_t refit_steps =
      options.given("--refit-steps") ? options.refit.steps : text.refit_steps;
  console.note("expected  " + compute.expected_cost(source, options.refit, text,
                                                    calibrates(request, options),
                                                    can_refit(source.spec) ? refit_steps : 0));
  if (checks_text(options) && !options.dry_run) {
    compute.check_is_predicted(source, text.tokens, "--text", options.refit, console);
  }
  compute.complete_text(source, options.text, options.refit, options.dry_run, text, console);
  if (!options.budget.budget.empty() && options.budget.data.empty()) {
    options.budget.data = text.tokens;
    options.budget.max_tokens = std::min(options.budget.max_tokens, text.windows * text.context);
  }
  refit_on(text, source.spec, options, console);
  if (text.distill_steps > 0) {
    request.pooling.distillation = compute.distillation_recipe(text, options.refit);
  }
  console.note(work_on(text, options));
  if (calibrates(request, options) && !options.dry_run) {
    compute.calibrate_on_text(source, options.refit, text, console);
    options.calibration = text.statistics;
  }
  return text;
}

std::optional<HeldOut> compare_on_held_out(const PreparedText& text,
                                           const ConversionRequest& request,
                                           const ConversionReport& report,
                                           const std::filesystem::path& result,
                                           const Console& console) {
  ConversionRequest mean;
  mean.kv_heads = request.kv_heads;
  mean.roles = request.roles;
  try {
    HeldOut found = compute_for("--text").compare_on_text(
        report.source, text, plan_conversion(report.source, mean), result.string(), console);
    if (!is_single_file(report.plan.container)) {
      const std::string config = read_text(result / "config.json", kMaxConfigBytes);
      ConversionRecord facts;
      facts.held_out = found;
      rewrite_record(result, report.plan.target, config_with_facts(config, facts));
    }
    return found;
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    console.note(
        fmt::format("warning: the result was not compared on held-out text: {}", fault.what()));
    return std::nullopt;
  }
}

}  // namespace regroup
