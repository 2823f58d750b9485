// regroup convert SRC DST --kv-heads G, and regroup expand SRC DST --kv-heads N
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/compare_result.h"
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
  std::string layout;
  std::string kv_heads;
  std::string attention = "self,cross";
  std::string container;
  std::string target = "same";
  std::string positions = "keep";
  std::string dtype;
  std::string pool = "mean";
  std::uint64_t pool_seed = 0;
  std::string calibration;
  bool measure = false;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  bool allow_nonfinite = false;
  bool skip_comparison = false;
  bool dry_run = false;
  bool json = false;
};

std::vector<AttentionRole> parse_roles(const std::string& text) {
  std::vector<AttentionRole> roles;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    if (item != "self" && item != "cross" && item != "encoder") {
      throw_usage("--attention: \"{}\" is none of self, cross, encoder", printable(item));
    }
    roles.push_back(item == "self"    ? AttentionRole::kSelf
                    : item == "cross" ? AttentionRole::kCross
                                      : AttentionRole::kEncoder);
  }
  return roles;
}

const std::map<std::string, DType> kDtypes{
    {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}, {"q8_0", DType::kQ8_0}};
const std::map<std::string, Container> kContainers{{"safetensors", Container::kSafetensors},
                                                   {"torch", Container::kTorch},
                                                   {"gguf", Container::kGguf},
                                                   {"llama2c", Container::kLlama2c}};

ConversionRequest request_of(const ConvertOptions& options) {
  ConversionRequest request;
  if (!options.kv_heads.empty()) {
    request.kv_heads = parse_kv_heads(options.kv_heads);
  } else if (options.target == "same" && options.positions == "keep" && options.dtype.empty() &&
             options.container.empty()) {
    throw_usage("nothing to do: --kv-heads, --to, --target, --positions or --dtype is needed");
  }
  request.roles = parse_roles(options.attention);
  request.pooling = {parse_pool_method(options.pool), options.pool_seed};
  request.target = options.target;
  request.positions = options.positions == "alibi" ? PositionChange::kAlibi : PositionChange::kKeep;
  if (!options.dtype.empty()) {
    request.dtype = kDtypes.at(options.dtype);
  }
  if (!options.container.empty()) {
    request.container = kContainers.at(options.container);
  }
  request.max_shard_bytes = options.max_shard_bytes;
  request.allow_nonfinite = options.allow_nonfinite;
  return request;
}

std::size_t changed_tensors(const ConversionPlan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [](const TensorStep& step) { return !step.unchanged(); }));
}

// The mean of one number over the groups of a layer.
double mean_over_groups(const LayerReport& layer, double GroupReport::* number) {
  double sum = 0.0;
  for (const GroupReport& group : layer.groups) {
    sum += group.*number;
  }
  return sum / static_cast<double>(layer.groups.size());
}

Json layers_json(const std::vector<LayerReport>& layers) {
  Json list = Json::array();
  for (const LayerReport& layer : layers) {
    Json groups = Json::array();
    for (const GroupReport& group : layer.groups) {
      groups.push_back({{"key_energy_kept", group.key_energy},
                        {"value_energy_kept", group.value_energy},
                        {"key_norm_ratio", group.key_norm},
                        {"value_norm_ratio", group.value_norm}});
    }
    list.push_back(
        {{"attention", name_of(layer.role)}, {"layer", layer.layer}, {"groups", groups}});
  }
  return list;
}

// What every layer keeps of its heads, over all of its groups.
std::string layers_table(const std::vector<LayerReport>& layers) {
  Table table;
  table.add_column("attention", Table::Align::kLeft);
  for (const char* title : {"layer", "K energy kept", "V energy kept", "K norm", "V norm"}) {
    table.add_column(title, Table::Align::kRight);
  }
  for (const LayerReport& layer : layers) {
    if (layer.groups.empty()) {
      continue;  // not measured
    }
    const auto percent = [&](double GroupReport::* number) {
      return fmt::format("{:.1f} %", 100 * mean_over_groups(layer, number));
    };
    table.add_row({std::string(name_of(layer.role)), std::to_string(layer.layer),
                   percent(&GroupReport::key_energy), percent(&GroupReport::value_energy),
                   fmt::format("{:.3f}", mean_over_groups(layer, &GroupReport::key_norm)),
                   fmt::format("{:.3f}", mean_over_groups(layer, &GroupReport::value_norm))});
  }
  return table.text();
}

Json before_or_null(const std::optional<CacheChange>& change) {
  return change ? Json(change->before) : Json(nullptr);
}

Json after_or_null(const std::optional<CacheChange>& change) {
  return change ? Json(change->after) : Json(nullptr);
}

Json report_json(const ConversionPlan& plan, const ConvertOptions& options,
                 const std::vector<LayerReport>& layers,
                 const std::optional<OutputComparison>& comparison, double seconds) {
  Json report = {{"source", options.source},
                 {"destination", options.destination},
                 {"dry_run", options.dry_run},
                 {"architecture", plan.target.architecture},
                 {"source_architecture", plan.spec.architecture},
                 {"query_heads", plan.spec.query_heads},
                 {"source_kv_heads", Json::parse(kv_heads_json(plan.spec))},
                 {"kv_heads", Json::parse(kv_heads_json(plan.grouped))},
                 {"stored_kv_heads", Json::parse(kv_heads_json(plan.target))},
                 {"pool", name_of(plan.pooling.method)},
                 {"tensors", plan.steps.size()},
                 {"changed_tensors", changed_tensors(plan)},
                 {"dropped_tensors", plan.dropped},
                 {"source_bytes", plan.source_bytes},
                 {"output_bytes", plan.output_bytes},
                 {"kv_bytes_per_token_before", before_or_null(plan.kv_bytes_per_token)},
                 {"kv_bytes_per_token_after", after_or_null(plan.kv_bytes_per_token)},
                 {"notes", plan.notes},
                 {"seconds", seconds}};
  if (!layers.empty()) {
    report["layers"] = layers_json(layers);
  }
  if (plan.cross_kv_bytes_per_token) {
    report["cross_kv_bytes_per_token_before"] = plan.cross_kv_bytes_per_token->before;
    report["cross_kv_bytes_per_token_after"] = plan.cross_kv_bytes_per_token->after;
  }
  if (comparison) {
    report["largest_logit_difference"] = comparison->largest_difference;
    report["largest_logit"] = comparison->largest_output;
  }
  return report;
}

// Nothing for models that keep no keys and values from token to token.
std::string cache_text(const ConversionPlan& plan) {
  const auto text = [](const CacheChange& change) {
    return fmt::format("{} -> {} per token", text_of_memory(static_cast<double>(change.before)),
                       text_of_memory(static_cast<double>(change.after)));
  };
  std::string line;
  if (plan.kv_bytes_per_token) {
    line = "\nKV cache  " + text(*plan.kv_bytes_per_token);
  }
  if (plan.cross_kv_bytes_per_token) {
    line += "; cross " + text(*plan.cross_kv_bytes_per_token) + " of the source";
  }
  return line;
}

std::string summary_text(const ConversionPlan& plan) {
  const std::string architecture = plan.target.architecture != plan.spec.architecture
                                       ? plan.spec.architecture + " -> " + plan.target.architecture
                                       : plan.spec.architecture;
  return fmt::format(
      "{}: {} layers, {} query heads, kv heads {} -> {} ({})\n"
      "weights   {} -> {} ({} of {} tensors change){}",
      architecture, plan.spec.layer_count(), plan.spec.query_heads, kv_heads_json(plan.spec),
      kv_heads_json(plan.grouped), name_of(plan.pooling.method),
      text_of_bytes(static_cast<double>(plan.source_bytes)),
      text_of_bytes(static_cast<double>(plan.output_bytes)), changed_tensors(plan),
      plan.steps.size(), cache_text(plan));
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
      const TensorInfo* before =
          step.moves.empty() ? nullptr : source.find(step.moves.front().source);
      table.add_row({printable(step.output.name), std::string(name_of(step.output.dtype)),
                     before == nullptr ? "none" : text_of(before->shape),
                     text_of(step.output.shape)});
    }
  }
  return table.text();
}

void report(const ConversionPlan& plan, const Model& source, const ConvertOptions& options,
            const std::vector<LayerReport>& layers,
            const std::optional<OutputComparison>& comparison, double seconds,
            const Console& console) {
  if (options.json) {
    console.print(text_of_json(report_json(plan, options, layers, comparison, seconds)));
  } else {
    if (options.dry_run && changed_tensors(plan) > 0) {
      console.print(steps_table(plan, source.checkpoint) + "\n");
    }
    if (!layers.empty() && (options.measure || console.verbosity() == Verbosity::kVerbose)) {
      console.print(layers_table(layers) + "\n");
    }
    console.print(summary_text(plan));
    if (comparison) {
      console.print(fmt::format("exactness  largest logit difference {:.3g} (logits up to {:.3g})",
                                comparison->largest_difference, comparison->largest_output));
    }
  }
  for (const std::string& note : plan.notes) {
    console.note("note: " + note);
  }
  for (const std::string& name : plan.dropped) {
    console.note("dropped: " + printable(name));
  }
  console.note(options.dry_run ? "dry run: nothing was written"
                               : fmt::format("wrote {}", printable(options.destination, 0)));
}

// Statistics that were taken of this very source.
std::shared_ptr<const Calibration> open_calibration(const Model& source,
                                                    const ConvertOptions& options) {
  if (options.calibration.empty()) {
    return nullptr;
  }
  auto calibration = std::make_shared<const Calibration>(options.calibration);
  calibration->check_source(fingerprint_of(source));
  return calibration;
}

void run_conversion(ConversionRequest request, const ConvertOptions& options,
                    const Console& console) {
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_model(options.source, {.layout = options.layout});
  request.calibration = open_calibration(source, options);
  const ConversionPlan plan = plan_conversion(source, request);
  std::vector<LayerReport> layers;
  std::optional<OutputComparison> comparison;
  const bool compared = !plan.in_place && !options.skip_comparison;
  if (!options.dry_run) {
    Progress progress(console, "convert", plan.output_bytes, "bytes");
    const auto check = [&](const std::filesystem::path& result) {
      if (compared) {
        progress.finish();
        comparison = compare_with_source(source, request, plan, result, console);
      }
    };
    layers = execute_conversion(
        plan, source, options.destination,
        [&](std::uint64_t done, std::string_view tensor) {
          progress.update(done, printable(tensor, 60));
        },
        interrupt_requested(), check);
    if (!compared) {
      progress.finish();
    }
  }
  if (options.measure && layers.empty()) {
    layers = measure_pooling(plan, source.checkpoint, interrupt_requested());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  report(plan, source, options, layers, comparison, elapsed.count(), console);
}

// Options that both commands have.
void add_common_options(CLI::App& command, ConvertOptions& options) {
  command
      .add_option("destination", options.destination,
                  "directory (or file) to make; must not exist yet")
      ->required();
  // As a size, -1 would wrap round to the largest there is.
  const CLI::Validator not_negative(
      [](std::string& text) {
        return std::string(text.find('-') == std::string::npos ? "" : "must not be negative");
      },
      "");
  command
      .add_option("--max-shard-size", options.max_shard_bytes,
                  "split the weights into files of at most this size, such as 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->transform(not_negative)  // the last transformation is the first to see what was typed
      ->default_str("5GB");
  command.add_flag("--dry-run", options.dry_run, "show what would be done and write nothing");
  command.add_flag("--json", options.json, "report as JSON");
}

void run_expand(const ConvertOptions& options, const Console& console) {
  const std::vector<std::int64_t> stored = parse_kv_heads(options.kv_heads);
  if (stored.size() != 1) {
    throw_usage("--kv-heads: one number for all layers is needed");
  }
  ConversionRequest request;
  request.target = "expanded";
  request.stored_kv_heads = stored.front();
  request.max_shard_bytes = options.max_shard_bytes;
  run_conversion(request, options, console);
}

}  // namespace

void add_convert_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      program.add_subcommand("convert", "Pool the K and V heads of a model into fewer");
  command->add_option("source", options->source, "model directory to convert")->required();
  add_common_options(*command, *options);
  command->add_option("--kv-heads", options->kv_heads,
                      "kv heads to keep: a divisor of the query heads (1 = multi-query), or a "
                      "comma-separated list with one per layer");
  command->add_option("--attention", options->attention,
                      "which attention of an encoder-decoder to group: self, cross, encoder");
  command->add_option("--target", options->target,
                      "architecture to write: same; expanded (every kv head stored once per query "
                      "head, for loaders without grouped heads); auto (one that computes the same "
                      "and whose loaders take grouped heads); or its name");
  command
      ->add_option("--positions", options->positions,
                   "keep, or alibi: drop the model's positions for ALiBi's slopes (uptraining has "
                   "to repair it)")
      ->check(CLI::IsMember({"keep", "alibi"}));
  command
      ->add_option("--to", options->container,
                   "container to write: safetensors or torch (a directory), gguf or llama2c (one "
                   "file); the source's own unless given")
      ->check(CLI::IsMember(kContainers));
  command
      ->add_option("--dtype", options->dtype,
                   "store floating tensors as this type (q8_0: matrices, in GGUF only)")
      ->check(CLI::IsMember(kDtypes));
  command->add_flag("--skip-comparison", options->skip_comparison,
                    "do not compute whether a result of another form gives the same logits");
  command
      ->add_option("--pool", options->pool,
                   "how a group of heads becomes one: mean; first, random or select (one of them); "
                   "aligned (mean in a common basis); lowrank (solved for the least error)")
      ->check(CLI::IsMember({"mean", "first", "random", "select", "aligned", "lowrank"}));
  command->add_option("--pool-seed", options->pool_seed, "of --pool random");
  command->add_option("--calibration", options->calibration,
                      "statistics of the source made by regroup calibrate: lowrank, aligned and "
                      "select then weigh errors as they occur in text");
  command->add_flag("--measure", options->measure,
                    "also measure what the other methods keep of each layer, and in a dry run");
  command->add_option("--layout", options->layout,
                      "a file that describes an architecture regroup does not know");
  command->add_flag("--allow-nonfinite", options->allow_nonfinite,
                    "pool heads that hold NaN or infinities");
  command->footer(
      "Example: regroup convert Llama-2-7b-hf Llama-2-7b-gqa8 --kv-heads 8\n"
      "Untouched tensors stay byte-identical; the result appears only when it is complete.");
  command->callback(
      [options, &console] { run_conversion(request_of(*options), *options, console); });
}

void add_expand_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = program.add_subcommand(
      "expand", "Store the kv heads of a grouped model several times, exactly");
  command->add_option("source", options->source, "model directory")->required();
  add_common_options(*command, *options);
  command
      ->add_option("--kv-heads", options->kv_heads,
                   "kv heads to store: a multiple of those there are (all query heads: a plain MHA "
                   "model)")
      ->required();
  command->footer(
      "Example: regroup expand Llama-2-7b-gqa4 Llama-2-7b-gqa4-tp8 --kv-heads 8\n"
      "Tensor-parallel servers need a multiple of their ranks.");
  command->callback([options, &console] { run_expand(*options, console); });
}

}  // namespace regroup
