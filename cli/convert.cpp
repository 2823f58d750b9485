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
#include "cli/conversion_report.h"
#include "cli/hand_over.h"
#include "cli/interrupt.h"
#include "cli/kv_budget.h"
#include "cli/progress.h"
#include "cli/refit.h"
#include "cli/sleeping_threads.h"
#include "converter/conversion_plan.h"
#include "converter/execute_plan.h"
#include "converter/kv_head_request.h"
#include "converter/provenance.h"
#include "converter/similar_grouping.h"
#include "formats/error.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "formats/staged_directory.h"

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
  std::string grouping = "contiguous";
  std::string calibration;
  RefitOptions refit;
  KvBudgetOptions budget;
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
  } else if (options.budget.budget.empty() && options.target == "same" &&
             options.positions == "keep" && options.dtype.empty() && options.container.empty()) {
    throw_usage(
        "nothing to do: --kv-heads, --kv-budget, --to, --target, --positions or --dtype is needed");
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

// The conversion's plan; with --grouping similar its heads are looked at first.
ConversionPlan make_plan(const Model& source, ConversionRequest& request,
                         const ConvertOptions& options, const Console& console,
                         std::vector<LayerGrouping>& groupings) {
  ConversionPlan contiguous = plan_conversion(source, request);
  if (options.grouping != "similar") {
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
  return looks_at_weights(request.pooling.method) || options.measure ||
         options.grouping == "similar" || !options.refit.data.empty() ||
         !options.budget.budget.empty();
}

void run_conversion(ConversionRequest request, const ConvertOptions& options,
                    const Console& console) {
  if (solves(request, options)) {
    hand_over_to_libtorch();
    let_threads_sleep();
  }
  if (!options.dry_run) {
    check_is_new(options.destination);
  }
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_model(options.source, {.layout = options.layout});
  request.calibration = open_calibration(options.calibration, source);
  std::optional<KvBudget> budget;
  if (!options.budget.budget.empty()) {
    request.grouping = options.grouping;
    budget = share_kv_budget(source, request, options.budget, options.refit, console,
                             interrupt_requested());
    request.kv_heads = budget->kv_heads();
  }
  request.refiner = make_refiner(source, options.refit, interrupt_requested());
  std::vector<LayerGrouping> groupings;
  const ConversionPlan plan = make_plan(source, request, options, console, groupings);
  ConversionReport done{
      plan, source, options.source, options.destination, options.dry_run, options.measure};
  done.groupings = std::move(groupings);
  done.budget = std::move(budget);
  const bool compared = !plan.in_place && !options.skip_comparison && !request.refiner;
  if (compared && !options.dry_run) {
    hand_over_to_libtorch();
  }
  if (!options.dry_run) {
    Progress progress(console, "convert", plan.output_bytes, "bytes");
    const auto check = [&](const std::filesystem::path& result) {
      if (compared) {
        progress.finish();
        done.comparison = compare_with_source(source, request, plan, result, console);
      }
    };
    done.layers = execute_conversion(
        plan, source, options.destination,
        [&](std::uint64_t bytes, std::string_view tensor) {
          progress.update(bytes, printable(tensor, 60));
        },
        interrupt_requested(), check, options.refit.threads);
    if (!compared) {
      progress.finish();
    }
  }
  if (options.measure && done.layers.empty()) {
    done.layers = measure_pooling(plan, source.checkpoint, interrupt_requested());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  done.seconds = elapsed.count();
  print_report(done, options.json, console);
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

void add_budget_options(CLI::App& command, KvBudgetOptions& options) {
  command
      .add_option("--kv-budget", options.budget,
                  "in place of --kv-heads: what keys and values of a token may take, as a size "
                  "such as 64KiB or a share of the source's such as 25%; layers that the model "
                  "misses least share more")
      ->excludes("--kv-heads");
  command.add_option("--kv-budget-data", options.data,
                     "token file: how much each layer is missed is measured on this text");
  command.add_option("--kv-budget-tokens", options.max_tokens, "read about so many tokens of it")
      ->check(CLI::PositiveNumber);
}

// Of what follows pooling.
void add_refit_options(CLI::App& command, RefitOptions& options) {
  command.add_option("--refit", options.data,
                     "token file: after pooling, let each attention by itself learn to give what "
                     "the source's gives on this text");
  const auto number = [&](const char* name, std::int64_t& value, const char* text) {
    command.add_option(name, value, text)->check(CLI::PositiveNumber);
  };
  number("--refit-steps", options.steps, "steps for each attention");
  number("--refit-batch", options.batch, "windows in a step");
  number("--refit-tokens", options.max_tokens, "read about so many tokens");
  number("--refit-context", options.context,
         "tokens in a window (default: 512, or the model's positions if fewer)");
  command.get_option("--refit-context")->default_str("");
  command
      .add_option("--refit-lr", options.learning_rate,
                  "learning rate, relative to the size of the weights")
      ->check(CLI::PositiveNumber);
  command.add_option("--device", options.device,
                     "where refitting and --kv-budget compute: cpu, cuda, cuda:N");
  command.add_option("--threads", options.threads, "CPU threads (default: one per core)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
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
  command
      ->add_option("--grouping", options->grouping,
                   "which heads share one: contiguous (neighbours), or similar (those that lose "
                   "least together, moved next to each other with their queries)")
      ->check(CLI::IsMember({"contiguous", "similar"}));
  command->add_option("--calibration", options->calibration,
                      "statistics of the source made by regroup calibrate: lowrank, aligned and "
                      "select then weigh errors as they occur in text");
  add_budget_options(*command, options->budget);
  add_refit_options(*command, options->refit);
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
