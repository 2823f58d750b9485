// regroup convert SRC DST --kv-heads G
#include <chrono>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/text.h"
#include "converter/conversion_plan.h"
#include "converter/execute_plan.h"
#include "converter/kv_head_request.h"
#include "converter/provenance.h"
#include "formats/error.h"
#include "formats/json.h"
#include "formats/printable.h"

namespace regroup {
namespace {

struct ConvertOptions {
  std::string source;
  std::string destination;
  std::string kv_heads;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;
  bool dry_run = false;
  bool json = false;
};

std::size_t changed_tensors(const ConversionPlan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [](const TensorStep& step) { return !step.unchanged(); }));
}

Json report_json(const ConversionPlan& plan, const ConvertOptions& options, double seconds) {
  return {{"source", options.source},
          {"destination", options.destination},
          {"dry_run", options.dry_run},
          {"architecture", plan.spec.architecture},
          {"query_heads", plan.spec.query_heads},
          {"source_kv_heads", Json::parse(per_layer_json(plan.spec.kv_heads))},
          {"kv_heads", Json::parse(per_layer_json(plan.kv_heads))},
          {"pool", "mean"},
          {"tensors", plan.steps.size()},
          {"changed_tensors", changed_tensors(plan)},
          {"source_bytes", plan.source_bytes},
          {"output_bytes", plan.output_bytes},
          {"kv_bytes_per_token_before", plan.kv_bytes_per_token_before},
          {"kv_bytes_per_token_after", plan.kv_bytes_per_token_after},
          {"notes", plan.notes},
          {"seconds", seconds}};
}

std::string summary_text(const ConversionPlan& plan) {
  return fmt::format(
      "{}: {} layers, {} query heads, kv heads {} -> {} (mean)\n"
      "weights   {} -> {} ({} of {} tensors change)\n"
      "KV cache  {} -> {} per token",
      plan.spec.architecture, plan.spec.layer_count(), plan.spec.query_heads,
      per_layer_json(plan.spec.kv_heads), per_layer_json(plan.kv_heads),
      text_of_bytes(static_cast<double>(plan.source_bytes)),
      text_of_bytes(static_cast<double>(plan.output_bytes)), changed_tensors(plan),
      plan.steps.size(), text_of_memory(static_cast<double>(plan.kv_bytes_per_token_before)),
      text_of_memory(static_cast<double>(plan.kv_bytes_per_token_after)));
}

// Every tensor that changes, with its shape before and after.
std::string steps_table(const ConversionPlan& plan, const Checkpoint& source) {
  Table table;
  table.add_column("tensor", Table::Align::kLeft);
  table.add_column("dtype", Table::Align::kLeft);
  table.add_column("shape", Table::Align::kRight);
  table.add_column("becomes", Table::Align::kRight);
  for (const TensorStep& step : plan.steps) {
    if (!step.unchanged()) {
      table.add_row({printable(step.output.name), std::string(name_of(step.output.dtype)),
                     text_of(source.at(step.output.name).shape), text_of(step.output.shape)});
    }
  }
  return table.text();
}

void run_convert(const ConvertOptions& options, const Console& console) {
  const auto begin = std::chrono::steady_clock::now();
  ConversionRequest request;
  request.kv_heads = parse_kv_heads(options.kv_heads);
  request.max_shard_bytes = options.max_shard_bytes;
  request.allow_nonfinite = options.allow_nonfinite;
  const Model source = open_model(options.source);
  const ConversionPlan plan = plan_conversion(source, request);

  if (!options.dry_run) {
    Progress progress(console, "convert", plan.output_bytes, "bytes");
    execute_conversion(
        plan, source, options.destination,
        [&](std::uint64_t done, std::string_view tensor) {
          progress.update(done, printable(tensor, 60));
        },
        interrupt_requested());
    progress.finish();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (options.json) {
    console.print(text_of_json(report_json(plan, options, elapsed.count())));
  } else {
    if (options.dry_run && changed_tensors(plan) > 0) {
      console.print(steps_table(plan, source.checkpoint) + "\n");
    }
    console.print(summary_text(plan));
  }
  for (const std::string& note : plan.notes) {
    console.note("note: " + note);
  }
  console.note(options.dry_run ? "dry run: nothing was written"
                               : fmt::format("wrote {}", printable(options.destination, 0)));
}

}  // namespace

void add_convert_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      program.add_subcommand("convert", "Pool the K and V heads of a model into fewer");
  command->add_option("source", options->source, "model directory to convert")->required();
  command->add_option("destination", options->destination, "directory to make; must not exist yet")
      ->required();
  command
      ->add_option("--kv-heads", options->kv_heads,
                   "kv heads to keep: a divisor of the query heads (1 = multi-query), or a "
                   "comma-separated list with one per layer")
      ->required();
  // As a size, -1 would wrap round to the largest there is.
  const CLI::Validator not_negative(
      [](std::string& text) {
        return std::string(text.find('-') == std::string::npos ? "" : "must not be negative");
      },
      "");
  command
      ->add_option("--max-shard-size", options->max_shard_bytes,
                   "split the weights into files of at most this size, such as 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->transform(not_negative)  // the last transformation is the first to see what was typed
      ->default_str("5GB");
  command->add_flag("--allow-nonfinite", options->allow_nonfinite,
                    "pool heads that hold NaN or infinities");
  command->add_flag("--dry-run", options->dry_run, "show what would be done and write nothing");
  command->add_flag("--json", options->json, "report as JSON");
  command->footer(
      "Example: regroup convert Llama-2-7b-hf Llama-2-7b-gqa8 --kv-heads 8\n"
      "Untouched tensors stay byte-identical; the result appears only when it is complete.");
  command->callback([options, &console] { run_convert(*options, console); });
}

}  // namespace regroup
