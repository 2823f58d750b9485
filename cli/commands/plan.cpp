// regroup plan MODEL
#include "cli/commands/commands.h"
#include "cli/report/pages.h"
#include "formats/model/model_summary.h"
#include "formats/model/serving_cost.h"

namespace regroup {
namespace {

struct PlanOptions {
  ServingPlan plan{.contexts = {4096, 8192, 16384, 32768, 131072}};
  ServingQuestion question;
  std::string layout;
  bool json = false;
  std::string html;
};

const std::map<std::string, DType> kCacheDtypes{
    {"fp32", DType::kF32},  {"fp16", DType::kF16},  {"bf16", DType::kBF16}, {"fp8", DType::kF8E4M3},
    {"int8", DType::kI8},   {"q8_0", DType::kQ8_0}, {"q5_1", DType::kQ5_1}, {"q5_0", DType::kQ5_0},
    {"q4_1", DType::kQ4_1}, {"q4_0", DType::kQ4_0}};

// The index of the most kv heads for which weights and cache fit.
std::optional<std::size_t> choose(const ServingPlan& plan) {
  const auto found = std::ranges::find_if(plan.costs, [&](const ServingCost& cost) {
    return cost.memory(plan.contexts.front(), plan.batch) <= *plan.vram;
  });
  return found == plan.costs.end() ? std::nullopt
                                   : std::optional<std::size_t>(found - plan.costs.begin());
}

void run_plan(const PlanOptions& options, bool context_given, bool batch_given,
              const Console& console) {
  check_page_path(options.html);
  ServingPlan plan = options.plan;
  const Model model = open_model_outline(plan.path, {.layout = options.layout});
  const bool names_config = std::filesystem::path(plan.path).filename() == "config.json";
  plan.source =
      names_config ? (model.path / "").lexically_normal().parent_path().string() : plan.path;
  plan.weights = !model.checkpoint.files().empty();
  plan.costs = serving_costs(model, options.question);
  plan.cache_dtype =
      options.question.cache_dtype.value_or(cache_dtype_of(model.spec, model.checkpoint));
  if (const auto& made = model.spec.max_positions; made && !context_given) {
    const auto most =
        std::max<std::uint64_t>(static_cast<std::uint64_t>(*made), plan.contexts.front());
    std::erase_if(plan.contexts, [&](std::uint64_t context) { return context > most; });
  }
  plan.chooses = plan.vram && context_given && batch_given && plan.contexts.size() == 1;
  if (plan.chooses) {
    plan.chosen = choose(plan);
  }
  print_plan(plan, options.json, console);
  console.notes("warning", disagreements_in(model.spec, model.checkpoint, model.config));
  if (context_given) {
    const auto longest = static_cast<std::int64_t>(std::ranges::max(plan.contexts));
    console.notes("warning", {warning_of_positions(model, longest)});
  }
  if (!options.html.empty()) {
    write_page(options.html, plan_page(plan), console);
  }
  if (plan.chooses && !plan.chosen) {
    throw_usage("--vram: {}", text_of_shortage(plan));
  }
}

}  // namespace

void add_plan_command(Command program, Console& console) {
  auto options = std::make_shared<PlanOptions>();
  Command command = program.add_command(
      "plan", "Show the effect of fewer kv heads on cache size, memory and decoding speed");
  command
      .add_option(
          "model", options->plan.path,
          "model directory, one weight file, a config.json without weights, or org/name in the "
          "hub's local cache")
      .required();
  add_size(command, "--vram", options->plan.vram,
           "available memory, such as 24GiB: shows the largest batches; with one --context and a "
           "--batch, chooses the most kv heads that fit");
  add_counts(command, "--context", options->plan.contexts,
             "tokens per sequence, such as 8192 or 4k,32k", {1, kMostContext})
      .default_text("4k,8k,16k,32k,128k");
  add_count(command, "--batch", options->plan.batch, "sequences at a time", {1, kMostBatch});
  add_rate(command, "--bandwidth", options->plan.bandwidth,
           "memory bandwidth, such as 3.3TB/s: shows the least time of a step");
  add_word(command, "--cache-dtype", options->question.cache_dtype,
           "dtype of keys and values (default: that of the weights)", kCacheDtypes);
  command.add_option("--layout", options->layout,
                     "layout file, which describes an architecture that regroup does not support");
  command.add_flag("--json", options->json, "report as JSON");
  command.add_option("--html", options->html, "write a page with charts to this file");
  command.footer(
      "Examples: regroup plan Llama-2-7b-hf --bandwidth 3.35TB/s\n"
      "          regroup plan Llama-2-7b-hf --vram 24GiB --context 4096 --batch 16\n"
      "Only weights and cache are counted, not the other memory that an engine needs. Reads only\n"
      "headers.");
  command.on_run([options, command, &console] {
    run_plan(*options, command.given("--context"), command.given("--batch"), console);
  });
}

}  // namespace regroup
