// regroup convert SRC DST --kv-heads G, and regroup expand SRC DST --kv-heads N
#include <chrono>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/commands/convert_options.h"
#include "cli/measure/compare_result.h"
#include "cli/measure/context_warning.h"
#include "cli/measure/kv_budget_options.h"
#include "cli/measure/refit_options.h"
#include "cli/options/command.h"
#include "cli/process/exec_compute.h"
#include "cli/process/interrupt.h"
#include "cli/process/sleeping_threads.h"
#include "cli/report/conversion_progress.h"
#include "cli/report/conversion_report.h"
#include "cli/report/conversion_warnings.h"
#include "cli/terminal/progress.h"
#include "converter/execute/execute_plan.h"
#include "converter/grouping/similar_grouping.h"
#include "converter/plan/conversion_plan.h"
#include "converter/provenance/provenance.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

// The conversion's plan; with --grouping similar its heads are looked at first.
ConversionPlan make_plan(const Model& source, ConversionRequest& request,
                         const ConvertOptions& options, const Console& console,
                         std::vector<LayerGrouping>& groupings) {
  ConversionPlan contiguous = plan_conversion(source, request);
  check_effects(options, source, contiguous);
  if (options.grouping != "similar") {
    return contiguous;
  }
  if (allows_one_grouping(contiguous)) {
    contiguous.notes.emplace_back(
        "--grouping similar: each layer keeps one kv head, for which there is one grouping: "
        "nothing was searched");
    return contiguous;
  }
  Progress progress(console, "group", pooled_layers(contiguous).size(), "layers");
  SimilarGrouping found = find_similar_grouping(
      contiguous, source.checkpoint,
      [&](std::int64_t done) { progress.update(static_cast<std::uint64_t>(done)); },
      interrupt_requested());
  progress.finish();
  groupings = std::move(found.layers);
  request.grouping = options.grouping;
  request.order = std::move(found.order);
  return plan_conversion(source, request);
}

// Whether more is asked for than moving and averaging heads.
bool solves(const ConversionRequest& request, const ConvertOptions& options) {
  return needs_solver(request.pooling.method) || options.measure || options.grouping == "similar" ||
         !options.refit.data.empty() || !options.budget.budget.empty();
}

void run_conversion(ConversionRequest request, const ConvertOptions& options,
                    const Console& console) {
  if (solves(request, options)) {
    exec_compute();
    let_threads_sleep();
  }
  if (!options.dry_run) {
    check_is_new(options.destination);
  }
  if (options.measure && options.calibration.empty()) {
    throw_usage(
        "--measure needs --calibration: what heads keep is told over the statistics of a text; "
        "regroup calibrate {} --data TOKENS -o stats.safetensors makes them",
        printable(options.source, 0));
  }
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_model(options.source, {.layout = options.layout});
  request.calibration = open_calibration(options.calibration, source);
  std::optional<KvBudget> budget;
  if (!options.budget.budget.empty()) {
    request.grouping = options.grouping;
    budget = share_kv_budget(source, request, options.budget, options.refit, console);
    request.kv_heads = budget->kv_heads();
  }
  request.refiner = make_refiner(source, options.refit, interrupt_requested());
  if (request.refiner) {
    warn_of_context(source, Json::parse(request.refiner->recipe()).at("context"), console);
  }
  std::vector<LayerGrouping> groupings;
  const ConversionPlan plan = make_plan(source, request, options, console, groupings);
  ConversionReport done{
      plan, source, options.source, options.destination, options.dry_run, options.measure};
  done.groupings = std::move(groupings);
  done.budget = std::move(budget);
  const bool compared = !plan.in_place && !options.skip_comparison && !request.refiner;
  if (compared && !options.dry_run) {
    exec_compute();
  }
  if (!options.dry_run) {
    ConversionProgressBar progress(console, plan);
    const auto check = [&](const std::filesystem::path& result) {
      if (compared) {
        progress.finish();
        done.comparison = compare_with_source(source, request, plan, result, console);
      }
    };
    done.layers = execute_conversion(
        plan, source, options.destination,
        [&](std::uint64_t bytes, std::string_view tensor) { progress.wrote(bytes, tensor); },
        interrupt_requested(), check, options.refit.threads);
    if (!compared) {
      progress.finish();
    }
  }
  if (options.measure && done.layers.empty()) {
    done.layers = measure_pooling(plan, source.checkpoint, interrupt_requested());
  }
  done.warnings = conversion_warnings(plan, options.source, done.layers);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  done.seconds = elapsed.count();
  print_report(done, options.json, console);
}

}  // namespace

void add_convert_command(Command program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  Command command = program.add_command("convert", "Pool the K and V heads of a model into fewer");
  add_convert_options(command, *options);
  command.footer(
      "Example: regroup convert Llama-2-7b-hf Llama-2-7b-gqa8 --kv-heads 8\n"
      "Untouched tensors stay byte-identical; the result appears only when it is complete.");
  command.on_run(
      [options, &console] { run_conversion(convert_request(*options), *options, console); });
}

void add_expand_command(Command program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  Command command =
      program.add_command("expand", "Store the kv heads of a grouped model several times, exactly");
  add_expand_options(command, *options);
  command.footer(
      "Example: regroup expand Llama-2-7b-gqa4 Llama-2-7b-gqa4-tp8 --kv-heads 8\n"
      "Tensor-parallel servers need a multiple of their ranks.");
  command.on_run(
      [options, &console] { run_conversion(expand_request(*options), *options, console); });
}

}  // namespace regroup
