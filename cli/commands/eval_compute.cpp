// regroup eval DIR --data FILE
#include <cmath>

#include "cli/commands/commands.h"
#include "cli/measure/data_origin.h"
#include "cli/shell/devices.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/table.h"
#include "cli/shell/uptrain_options.h"
#include "formats/base/ranges.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/evaluate.h"

namespace regroup {
namespace {

// A CPU is no faster with more tokens at a time, and shows its progress later.
constexpr std::int64_t kUsualBatch = 8, kUsualTokens = 8'192, kUsualTokensOnCpu = 2'048;

struct EvalOptions {
  std::string model;
  std::string data;
  TextInput text;
  DocumentOptions documents;
  std::vector<std::int64_t> contexts;
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> max_tokens;
  std::string device = "cpu";
  Precision precision = Precision::kFp32;
  int threads = 0;
  TaskSettings task;
  bool seed_given = false;
  std::string logits;
  bool json = false;
};

// The result for windows of `context` tokens, or why the model does not support them.
struct ContextResult {
  std::int64_t context = 0;
  std::optional<Evaluation> evaluation;
  double seconds = 0.0;
  std::string obstacle;
};

// The tokens that the loss is averaged over.
std::string_view text_of(Objective objective) {
  switch (objective) {
    case Objective::kMaskedTokens: return " masked";
    case Objective::kContinuation: return " of second halves";
    case Objective::kSpanCorruption: return " of masked spans";
    case Objective::kTextInfilling: return " of infilled texts";
    case Objective::kNextToken: break;
  }
  return "";
}

Json json_of(const ContextResult& result) {
  if (!result.evaluation) {
    return {{"context", result.context}, {"not_possible", result.obstacle}};
  }
  const auto tokens = static_cast<double>(result.evaluation->tokens);
  return {{"loss", result.evaluation->loss},     {"perplexity", result.evaluation->perplexity},
          {"tokens", result.evaluation->tokens}, {"context", result.context},
          {"seconds", result.seconds},           {"tokens_per_second", tokens / result.seconds}};
}

// Why the model does not support windows of that many tokens; empty if it does.
std::string obstacle_to(const ModelSpec& spec, std::int64_t context) {
  if (spec.has_position_table() && context > spec.max_positions.value_or(context)) {
    return fmt::format("not possible: {} positions for {} only", name_of(spec.positions),
                       *spec.max_positions);
  }
  return "";
}

// The evaluation to run, made and checked before the weights are read.
struct EvalRequest {
  const EvalOptions& options;
  Model source;
  std::shared_ptr<const TokenInput> input;
  TokenFile data;
  c10::Device device;
  std::vector<std::int64_t> contexts;
  TaskSettings task = {};
  DocumentSettings documents = {};

  // The data or the first text.
  const std::string& text_name() const {
    return options.text.files.empty() ? options.data : options.text.files.front();
  }
  Transformer load() const {
    return load_transformer(source, scalar_type_of(options.precision), device);
  }
  Objective objective() const { return task.objective.value_or(objective_of(source.spec)); }

  // Long windows are fewer at a time, for memory's sake.
  EvaluationSettings settings_at(std::int64_t context) const {
    const std::int64_t tokens = device.is_cpu() ? kUsualTokensOnCpu : kUsualTokens;
    const std::int64_t usual = std::clamp<std::int64_t>(tokens / context, 1, kUsualBatch);
    return {.context = context,
            .batch = options.batch.value_or(usual),
            .max_tokens = options.max_tokens,
            .task = task,
            .documents = documents};
  }

  std::vector<std::int64_t> possible_contexts() const {
    std::vector<std::int64_t> possible = contexts;
    std::erase_if(possible,
                  [&](std::int64_t context) { return !obstacle_to(source.spec, context).empty(); });
    return possible;
  }
};

TaskSettings task_of(const EvalOptions& options, const Model& source) {
  TaskSettings task = options.task;
  const Objective objective = task.objective.value_or(objective_of(source.spec));
  check_task_options(options.task, objective);
  const bool corrupts = objective == Objective::kMaskedTokens ||
                        objective == Objective::kSpanCorruption ||
                        objective == Objective::kTextInfilling;
  if (options.seed_given && (!corrupts || !options.logits.empty())) {
    refuse_without_effect("--seed", "no token is masked");
  }
  return with_special_tokens(std::move(task), source);
}

void check_contexts(const EvalRequest& request) {
  const bool writes = !request.options.logits.empty();
  if (writes && request.documents.separate) {
    throw_usage("--write-logits needs --documents pack: it writes logits of consecutive windows");
  }
  if (writes && request.contexts.size() > 1) {
    throw_usage("--write-logits needs one --context, not {}", request.contexts.size());
  }
  if (request.possible_contexts().empty()) {
    throw_usage("context is {}, the model has {} positions for {}", request.contexts.front(),
                name_of(request.source.spec.positions), *request.source.spec.max_positions);
  }
}

// Names the contexts that are read: --max-tokens may be fewer.
void take_read_contexts(EvalRequest& request) {
  for (std::int64_t& context : request.contexts) {
    if (obstacle_to(request.source.spec, context).empty()) {
      context = evaluation_context(request.settings_at(context), request.source.spec);
    }
  }
  std::vector<std::int64_t> distinct;
  for (const std::int64_t context : request.contexts) {
    if (!contains(distinct, context)) {
      distinct.push_back(context);
    }
  }
  request.contexts = std::move(distinct);
}

EvalRequest make_request(const EvalOptions& options) {
  constexpr std::int64_t kDefaultContext = 1024;
  Model source = open_predicting_model(options.model);
  const auto input = std::make_shared<const TokenInput>(options.data, options.text, source,
                                                        options.threads, std::nullopt);
  EvalRequest request{
      options,         std::move(source), input, input->open(), parse_device(options.device),
      options.contexts};
  if (request.contexts.empty()) {
    request.contexts.push_back(usual_context(request.source, kDefaultContext));
  }
  request.task = task_of(options, request.source);
  request.documents = options.documents.settings();
  check_contexts(request);
  if (options.logits.empty()) {
    take_read_contexts(request);
  }
  return request;
}

// What contradicts the config, and one line for each context that is longer than the model was made
// for.
std::vector<std::string> warnings_of(const EvalRequest& request) {
  std::vector<std::string> warnings = request.source.spec.contradictions;
  append(warnings, mapped(request.possible_contexts(), [&](std::int64_t context) {
           return warning_of_context(request.source, context);
         }));
  std::erase(warnings, "");
  return warnings;
}

// For one context, its results are members of the report; for several, they are a list.
Json report_json(const EvalRequest& request, const std::vector<ContextResult>& results) {
  Json report = {{"model", request.options.model},
                 {"data", request.text_name()},
                 {"objective", name_of(request.objective())},
                 {"dtype", name_of(request.options.precision)},
                 {"warnings", warnings_of(request)}};
  if (results.size() == 1) {
    report.update(json_of(results.front()));
  } else {
    report["contexts"] =
        json_list(results, [](const ContextResult& result) { return json_of(result); });
  }
  return report;
}

std::string table_of(const std::vector<ContextResult>& results, const Console& console) {
  Table table;
  table.add_numbers({"context", "loss", "perplexity", "tokens"});
  std::string obstacles;
  for (const ContextResult& result : results) {
    const std::string context = with_thousands(result.context);
    if (!result.evaluation) {
      table.add_row({context, "-", "-", "-"});
      obstacles += fmt::format("\n{}: {}", context, result.obstacle);
      continue;
    }
    table.add_row({context, fmt::format("{:.4f}", result.evaluation->loss),
                   text_of_perplexity(result.evaluation->loss),
                   with_thousands(result.evaluation->tokens)});
  }
  return table.text(console) + obstacles;
}

// Prints one result, which has an evaluation, as lines, several as a table.
void print_eval_report(const EvalRequest& request, const std::vector<ContextResult>& results,
                       const Console& console) {
  if (request.options.json) {
    console.print(text_of_json(report_json(request, results)));
  } else if (results.size() > 1) {
    console.print(table_of(results, console));
  } else {
    const Evaluation& evaluation = *results.front().evaluation;
    console.print(
        fmt::format("loss        {:.4f} nats per token\nperplexity  {}\n"
                    "tokens      {}{} in windows of {}, computed in {}",
                    evaluation.loss, text_of_perplexity(evaluation.loss),
                    with_thousands(evaluation.tokens), text_of(request.objective()),
                    with_thousands(results.front().context), name_of(request.options.precision)));
  }
}

// Tokens in the windows of all supported contexts. Throws kBadInput if the file is too short.
std::uint64_t evaluated_tokens(const EvalRequest& request) {
  std::int64_t tokens = 0;
  for (const std::int64_t context : request.possible_contexts()) {
    tokens += context *
              evaluation_windows(request.data, request.settings_at(context), request.source.spec);
  }
  return static_cast<std::uint64_t>(tokens);
}

void check_finite(const EvalRequest& request, std::int64_t context, const Evaluation& evaluation) {
  const EvalOptions& options = request.options;
  if (!std::isfinite(evaluation.loss)) {
    throw_bad_input(
        "{}: the loss on {} is {} in windows of {}: NaN or infinity in the weights (regroup "
        "inspect --stats finds them) or in the {} computation{}",
        printable(options.model, 0), request.text_name(), evaluation.loss, context,
        name_of(options.precision),
        options.precision == Precision::kFp32 ? "" : " (try --dtype fp32)");
  }
}

std::vector<ContextResult> evaluate_contexts(const EvalRequest& request, const Transformer& model,
                                             Progress& progress) {
  std::vector<ContextResult> results;
  std::int64_t read = 0;
  for (const std::int64_t context : request.contexts) {
    ContextResult result{context, {}, 0.0, obstacle_to(request.source.spec, context)};
    if (result.obstacle.empty()) {
      const auto begin = std::chrono::steady_clock::now();
      std::int64_t windows = 0;
      const CountProgress on_progress = [&](std::int64_t done, std::int64_t) {
        windows = done;
        progress.update(read + done * context);
      };
      result.evaluation = evaluate(model, request.data, request.settings_at(context), on_progress,
                                   interrupt_requested());
      check_finite(request, context, *result.evaluation);
      read += windows * context;
      result.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    results.push_back(std::move(result));
  }
  return results;
}

// Only whole windows are read, which counts for short texts.
void note_rest(const EvalRequest& request, std::int64_t read, const Console& console) {
  constexpr std::int64_t kNotable = 20;  // a part of the text
  const std::int64_t all = request.data.size();
  if (request.contexts.size() == 1 && !request.options.max_tokens && !request.documents.separate &&
      (all - read) * kNotable > all) {
    console.note(
        fmt::format("note: the last {} of {} tokens fill no window and were not read; a smaller "
                    "--context reads more of them",
                    with_thousands(all - read), with_thousands(all)));
  }
}

void run_logits(const EvalRequest& request, const Console& console) {
  const EvalOptions& options = request.options;
  const EvaluationSettings settings = request.settings_at(request.contexts.front());
  const std::int64_t windows = logits_windows(request.data, settings, request.source.spec);
  const Transformer model = request.load();
  Progress progress(console, "logits", windows * settings.context, "tokens");
  const CountProgress on_progress = [&](std::int64_t done, std::int64_t) {
    progress.update(done * settings.context);
  };
  write_logits(model, request.data, settings, options.logits, on_progress, interrupt_requested());
  progress.finish();
  if (options.json) {
    console.print(text_of_json({{"model", options.model},
                                {"data", request.text_name()},
                                {"logits", options.logits},
                                {"windows", windows},
                                {"context", settings.context},
                                {"warnings", warnings_of(request)}}));
  }
  console.note(fmt::format("wrote {}", printable(options.logits, 0)));
}

void run_eval(const EvalOptions& options, const Console& console) {
  set_compute_threads(options.threads);
  if (!options.logits.empty()) {
    check_output_name(options.logits, "a safetensors file", {".safetensors"});
  }
  const EvalRequest request = make_request(options);
  check_data_origin(request.source, options.data, console);
  warn_of_precision(options.precision, request.device, console);
  console.notes("warning", warnings_of(request));
  if (!options.logits.empty()) {
    run_logits(request, console);
    return;
  }
  const std::uint64_t tokens = evaluated_tokens(request);
  const Transformer model = request.load();
  Progress progress(console, "eval", tokens, "tokens");
  const std::vector<ContextResult> results = evaluate_contexts(request, model, progress);
  progress.finish();
  print_eval_report(request, results, console);
  note_rest(request, static_cast<std::int64_t>(tokens), console);
}

}  // namespace

void add_eval_command(Command program, Console& console) {
  auto options = std::make_shared<EvalOptions>();
  Command command = add_whole_command(program, "eval");
  command.add_option("model", options->model, kModelHelp).required();
  command.add_option("--data", options->data,
                     "token file: raw ids, llm.c, numpy, or Megatron's .bin with its .idx");
  add_text_input(command, options->text, "instead of --data: text files or JSON lines");
  add_counts(
      command, "--context", options->contexts,
      "tokens in a window of text; several, such as 128,256,512, give a table (default: 1024, "
      "or fewer where the model declares fewer positions or was uptrained on shorter windows)",
      {1, kMostContext});
  add_document_options(command, options->documents);
  add_count(command, "--batch", options->batch,
            "windows at a time (default: 8, but at most 2048 tokens, on a GPU 8192)",
            {1, kMostBatch});
  add_count(command, "--max-tokens", options->max_tokens,
            "read about this many tokens (default: all)");
  add_device_option(command, options->device);
  add_word(command, "--dtype", options->precision, "dtype to compute in", kPrecisions,
           parse_precision);
  add_threads_option(command, options->threads);
  add_task_options(command, options->task, "continuation");
  add_count(command, "--seed", options->task.seed, "seed of the choice of masked tokens and spans",
            kAnySeed);
  command.add_option("--write-logits", options->logits,
                     "instead write the logits of consecutive windows, [windows, context, "
                     "vocabulary], to this safetensors file");
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup eval Llama-2-7b-gqa8 --text held-out.txt --context 2048\n"
      "The predicted tokens depend on the model. Decoders: every next token. BERT-like models:\n"
      "15 % of the tokens of each window, of which 80 % are masked, 10 % replaced and 10 % left\n"
      "unchanged; the same seed gives the same ones. Encoder-decoders: the second half of each\n"
      "window, while the encoder reads the first half; the decoder begins with its start token.\n"
      "--write-logits masks no token; for encoder-decoders it writes logits of the second half.");
  command.on_run([options, &console, command] {
    options->seed_given = command.given("--seed");
    with_torch_errors([&] { run_eval(*options, console); });
  });
}

}  // namespace regroup
