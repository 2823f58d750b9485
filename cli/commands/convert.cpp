// regroup convert SRC DST --kv-heads G, and regroup expand SRC DST --kv-heads N
#include <set>

#include "cli/commands/commands.h"
#include "cli/measure/compute_functions.h"
#include "cli/measure/data_origin.h"
#include "cli/report/conversion_report.h"
#include "cli/shell/compute_program.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/quantity.h"
#include "converter/convert/attention_pooler.h"
#include "converter/convert/model_card.h"
#include "converter/convert/similar_grouping.h"
#include "formats/base/file.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model_directory.h"

namespace regroup {
namespace {

// Checks that there is room for the result before hours of work on a text. With a budget, that is
// for one kv head in each layer.
void check_room(const Model& source, const ConvertOptions& options) {
  ConversionRequest least = options.request;
  if (options.budget.given()) {
    least.kv_heads = {1};
  }
  check_free_space(existing_folder_above(options.destination),
                   plan_conversion(source, least).output_bytes);
}

// The text of --text, if it is given.
std::optional<PreparedText> use_text(const Model& source, ConvertOptions& options,
                                     Console& console) {
  if (!options.text.given()) {
    return std::nullopt;
  }
  if (!options.budget.given() && pooled_layers(plan_conversion(source, options.request)).empty()) {
    refuse_without_effect("--text", "no layer gets fewer kv heads");
  }
  if (!options.dry_run) {
    check_room(source, options);
  }
  return compute_for("--text").prepare_text(source, options, console);
}

// Compares the result, which is not published yet, with its source and with pooling by the mean,
// and records what it finds. A comparison that fails is a warning and must not cost the result.
std::optional<HeldOut> compare_on_held_out(const PreparedText& text, const ConversionReport& report,
                                           const std::filesystem::path& result,
                                           const Console& console) {
  ConversionRequest mean = report.options.request;
  mean.pooling = {};
  mean.grouping = ConversionRequest().grouping;
  mean.order = {};
  mean.calibration = nullptr;
  mean.refiner = nullptr;
  std::optional<HeldOut> found;
  run_or_note(console, "warning: the result was not compared on held-out text", [&] {
    HeldOut measured = compute_for("--text").compare_on_text(report.source, report.options, text,
                                                             plan_conversion(report.source, mean),
                                                             result.string(), console);
    if (!is_single_file(report.plan.container)) {
      const std::string config = read_text(result / "config.json", kMaxConfigBytes);
      ConversionRecord facts;
      HeldOut recorded = measured;
      if (!recorded.own_tokens && !report.options.text.samples) {
        recorded.answers.reset();  // they begin with the user's text, which a result must not show
      }
      facts.held_out = std::move(recorded);
      rewrite_record(result, report.plan.target, config_with_facts(config, facts));
    }
    found = std::move(measured);
  });
  return found;
}

// Plans the conversion. For --grouping similar, searches the grouping first and returns it in
// `groupings`.
ConversionPlan make_plan(const Model& source, ConvertOptions& options, const Console& console,
                         std::vector<LayerGrouping>& groupings) {
  ConversionRequest& request = options.request;
  ConversionPlan contiguous = plan_conversion(source, request);
  check_effects(options, source, contiguous);
  if (options.grouping != "similar") {
    return contiguous;
  }
  if (allows_one_grouping(contiguous)) {
    contiguous.notes.emplace_back(
        "--grouping similar: each layer keeps one kv head, so only one grouping is possible");
    return contiguous;
  }
  Progress progress(console, "group", pooled_layers(contiguous).size(), "layers");
  SimilarGrouping found = find_similar_grouping(contiguous, source.checkpoint, progress.callback(),
                                                interrupt_requested());
  progress.finish();
  groupings = std::move(found.layers);
  request.grouping = options.grouping;
  request.order = std::move(found.order);
  return plan_conversion(source, request);
}

// Whether the conversion does more than moving and averaging heads, which needs LibTorch.
bool solves(const ConvertOptions& options) {
  return options.takes_statistics() || !options.refit.data.empty() || options.budget.given() ||
         options.text.given();
}

void check_arguments(const ConvertOptions& options) {
  if (options.measure && options.calibration.empty()) {
    throw_usage(
        "--measure needs --calibration: it measures heads with the statistics of a text; regroup "
        "calibrate {} --data FILE -o stats.safetensors makes them",
        printable(options.source, 0));
  }
}

// Checks the token files that the user named; the text of --text is already checked.
void check_data(const Model& source, const ConvertOptions& options, const Console& console) {
  const auto check = [&](const char* option, const std::string& data, bool reads) {
    if (data.empty() || !options.given(option)) {
      return;
    }
    check_data_origin(source, data, console);
    if (reads && !options.any_text) {
      compute_for(option).check_is_predicted(source, data, option, options, console);
    }
  };
  check("--kv-budget-data", options.budget.data, true);
  check("--refit", options.refit.data, !options.dry_run);
}

// Adds statistics, the device, the kv heads of --kv-budget and the refiner to the request. Returns
// the budget.
std::optional<KvBudget> complete_request(const Model& source, ConvertOptions& options,
                                         const Console& console) {
  ConversionRequest& request = options.request;
  request.calibration = open_calibration(options.calibration, source);
  if (request.calibration && options.text.given() && !options.given("--calibration")) {
    request.pooling.discarded_statistics = {request.calibration->tokens(),
                                            request.calibration->fingerprint()};
  }
  if (options.device != request.pooling.device) {
    request.pooling.device = compute_for("--device").solving_device(options);
  }
  check_data(source, options, console);
  std::optional<KvBudget> budget;
  if (options.budget.given()) {
    request.grouping = options.grouping;
    if (options.dry_run) {
      console.note(
          "note: --kv-budget measures the layers first, in a dry run too: this takes a while");
    }
    budget = compute_for("--kv-budget").share_kv_budget(source, options, console);
    request.kv_heads = budget->kv_heads();
  }
  if (!options.refit.data.empty()) {
    request.refiner = compute_for("--refit").make_refiner(source, options, interrupt_requested());
    warn_of_context(source, static_cast<std::int64_t>(request.refiner->recipe().context.value()),
                    console);
  }
  return budget;
}

// An attention of a layer.
using Place = std::pair<AttentionRole, std::size_t>;
using Places = std::map<std::string, Place, std::less<>>;

// The places of the tensors that are solved for.
Places solved_tensors(const ConversionPlan& plan) {
  Places solved;
  for (const TensorStep& step : plan.steps) {
    for (const HeadMove& move : step.moves) {
      if (move.pooled) {
        solved.emplace(step.output.name, Place{move.pooled->role, move.pooled->layer});
      }
    }
  }
  return solved;
}

// The progress bar of a conversion. Its unit is what takes most of the time: steps of refitting,
// layers whose pooling is solved, or bytes.
class ConversionProgressBar {
 public:
  // Registers with the plan's refiner, if there is one. Keeps references to both arguments.
  ConversionProgressBar(const Console& console, const ConversionPlan& plan)
      : plan_(plan), solved_(solved_tensors(plan)), progress_(progress(console)) {
    if (refiner() != nullptr) {
      refiner()->report_to([this](const RefinementStep& step) { refined(step); });
    }
  }
  ConversionProgressBar(const ConversionProgressBar&) = delete;
  ConversionProgressBar& operator=(const ConversionProgressBar&) = delete;
  ~ConversionProgressBar() {
    if (refiner() != nullptr) {
      refiner()->report_to({});
    }
  }

  // For use as a ConversionProgress.
  void wrote(std::uint64_t bytes, std::string_view tensor) {
    if (refiner() != nullptr) {
      return;  // see refined()
    }
    if (solved_.empty()) {
      progress_.update(bytes, printable(tensor, 60));
    } else if (const auto found = solved_.find(tensor); found != solved_.end()) {
      layers_.insert(found->second);
      progress_.update(layers_.size());
    }
  }

  void finish() { progress_.finish(); }

 private:
  AttentionRefiner* refiner() const { return plan_.request.refiner.get(); }

  Progress progress(const Console& console) const {
    const std::uint64_t layers = pooled_layers(plan_).size();
    if (refiner() != nullptr) {
      return {console, "refit", layers * refiner()->steps(), "steps"};
    }
    if (!solved_.empty()) {
      return {console, "convert", layers, "layers"};
    }
    return {console, plan_.request.target == "expanded" ? "expand" : "convert", plan_.output_bytes,
            "bytes"};
  }

  void refined(const RefinementStep& step) {
    layers_.insert({step.role, step.layer});
    const std::int64_t each = refiner()->steps();
    const std::int64_t before = (std::ssize(layers_) - 1) * each;
    progress_.update(
        before + step.step,
        fmt::format("{}layer {}/{}, step {}/{}, error {:.3g} %",
                    plan_.spec.has_encoder() ? fmt::format("{} ", name_of(step.role)) : "",
                    step.layer + 1, plan_.spec.stack(step.role).size(), step.step, each,
                    100 * step.error));
  }

  const ConversionPlan& plan_;
  Places solved_;
  Progress progress_;
  std::set<Place> layers_;  // done or in progress
};

// Compares a result in another form with its source.
std::optional<OutputComparison> compare_if_possible(const ConversionReport& report,
                                                    const std::filesystem::path& result,
                                                    const Console& console) {
  if (compute_functions != nullptr) {
    return compute_functions->compare_with_source(report.source, report.options.request,
                                                  report.plan, result, console);
  }
  console.note("note: built without LibTorch, so the result was not compared by computing");
  return std::nullopt;
}

// Carries out the plan. A result in another form, or made with --text, is compared with the source
// before it is published.
void write_result(const std::optional<PreparedText>& text, ConversionReport& report,
                  const Console& console) {
  const ConversionPlan& plan = report.plan;
  const ConvertOptions& options = report.options;
  const bool compares = !plan.in_place && !options.skip_logits_check && !options.request.refiner;
  if (compares) {
    exec_compute();
  }
  ConversionProgressBar progress(console, plan);
  const auto check = [&](const std::filesystem::path& result) {
    if (compares || text) {
      progress.finish();
    }
    if (compares) {
      report.comparison = compare_if_possible(report, result, console);
    }
    if (text && options.request.pooling.distillation) {
      report.distillation = compute_for("--text").distill_on_text(report.source, plan, *text,
                                                                  options, result, console);
    }
    if (text) {
      report.held_out = compare_on_held_out(*text, report, result, console);
    }
  };
  report.layers = execute_conversion(
      plan, report.source, options.destination,
      [&](std::uint64_t bytes, std::string_view tensor) { progress.wrote(bytes, tensor); },
      interrupt_requested(), check, options.threads);
  if (report.distillation) {
    compute_for("--text").forget_distillation(report.source, options.destination);
  }
  if (!compares && !text) {
    progress.finish();
  }
}

void run_conversion(ConvertOptions& options, Console& console) {
  if (solves(options)) {
    exec_compute();
  }
  check_arguments(options);
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_model(options.source, {.layout = options.layout});
  if (!options.dry_run) {
    check_is_new(options.destination);
  }
  choose_windows(source, options.refit);
  if (options.budget.given()) {
    compute_for("--kv-budget").open_kv_budget(source, options);  // before the text is prepared
  }
  const std::optional<PreparedText> text = use_text(source, options, console);
  std::optional<KvBudget> budget = complete_request(source, options, console);
  std::vector<LayerGrouping> groupings;
  ConversionPlan plan = make_plan(source, options, console, groupings);
  if (plan.container == Container::kGguf && !options.request.container &&
      !names_gguf_file(options.destination)) {
    plan.notes.emplace_back(
        "the result is one GGUF file, as the source is; --to safetensors writes a directory for "
        "transformers and vLLM");
  }
  if (options.dry_run && path_exists(options.destination)) {
    plan.notes.push_back(fmt::format("{} exists already: without --dry-run it is refused",
                                     printable(options.destination, 0)));
  }
  ConversionReport report{options, plan, source};
  report.groupings = std::move(groupings);
  report.budget = std::move(budget);
  if (!options.dry_run) {
    write_result(text, report, console);
  }
  if (options.measure && report.layers.empty()) {
    report.layers = measure_pooling(plan, source.checkpoint, interrupt_requested());
  }
  if (!text || !options.dry_run) {  // a dry run does not calibrate
    report.warnings = conversion_warnings(report);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  report.seconds = elapsed.count();
  print_report(report, console);
}

}  // namespace

void add_convert_command(Command program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  Command command = program.add_command("convert", "Pool the K and V heads of a model into fewer");
  add_convert_options(command, *options);
  command.footer(
      "Example: regroup convert Llama-2-7b-hf Llama-2-7b-gqa8 --kv-heads 8 "
      "--text corpus.txt\n"
      "Untouched tensors stay byte-identical; the result appears only when it is complete.");
  command.on_run([options, &console] {
    set_convert_request(*options);
    run_conversion(*options, console);
  });
}

void add_expand_command(Command program, Console& console) {
  auto options = std::make_shared<ConvertOptions>();
  Command command = program.add_command(
      "expand", "Repeat the kv heads of a grouped model for servers that need more; same outputs");
  add_expand_options(command, *options);
  command.footer(
      "Example: regroup expand Llama-2-7b-gqa4 Llama-2-7b-gqa4-tp8 --kv-heads 8\n"
      "Tensor-parallel servers need a multiple of their number of ranks.");
  command.on_run([options, &console] {
    set_expand_request(*options);
    run_conversion(*options, console);
  });
}

}  // namespace regroup
