// regroup eval DIR --data FILE
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/sleeping_threads.h"
#include "cli/text.h"
#include "formats/error.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "uptrain/device.h"
#include "uptrain/evaluate.h"
#include "uptrain/language_model.h"

namespace regroup {
namespace {

struct EvalOptions {
  std::string model;
  std::string data;
  std::int64_t context = 0;
  std::int64_t batch = 8;
  std::int64_t max_tokens = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  int threads = 0;
  std::optional<std::int64_t> mask_token;
  std::uint64_t seed = 0;
  std::string logits;
  bool json = false;
};

// A request that is made and checked before the weights are read.
struct EvalRequest {
  Model source;
  TokenFile data;
  EvaluationSettings settings;
  c10::Device device;
  c10::ScalarType type;
};

EvalRequest make_request(const EvalOptions& options) {
  constexpr std::int64_t kDefaultContext = 1024;
  EvalRequest request{open_computable_model(options.model),
                      TokenFile::open(options.data),
                      {},
                      parse_device(options.device),
                      scalar_type_of(parse_precision(options.precision))};
  const std::int64_t limit = request.source.spec.max_positions.value_or(kDefaultContext);
  request.settings.context =
      options.context > 0 ? options.context : std::min(kDefaultContext, limit);
  request.settings.batch = options.batch;
  if (options.max_tokens > 0) {
    request.settings.max_tokens = options.max_tokens;
  }
  request.settings.mask_token = options.mask_token;
  request.settings.seed = options.seed;
  if (options.mask_token && objective_of(request.source.spec) != Objective::kMaskedTokens) {
    throw_usage("--mask-token is for models that predict masked tokens, {} is none",
                printable(options.model, 0));
  }
  return request;
}

// Which tokens the loss is the mean of.
std::string_view text_of(Objective objective) {
  switch (objective) {
    case Objective::kMaskedTokens: return " masked";
    case Objective::kContinuation: return " of second halves";
    case Objective::kNextToken: break;
  }
  return "";
}

Json report_json(const EvalOptions& options, const EvalRequest& request,
                 const Evaluation& evaluation, double seconds) {
  return {{"model", options.model},
          {"data", options.data},
          {"objective", name_of(objective_of(request.source.spec))},
          {"loss", evaluation.loss},
          {"perplexity", evaluation.perplexity},
          {"tokens", evaluation.tokens},
          {"context", request.settings.context},
          {"seconds", seconds},
          {"tokens_per_second", static_cast<double>(evaluation.tokens) / seconds}};
}

void report(const EvalOptions& options, const EvalRequest& request, const Evaluation& evaluation,
            double seconds, const Console& console) {
  if (options.json) {
    console.print(text_of_json(report_json(options, request, evaluation, seconds)));
    return;
  }
  console.print(
      fmt::format("loss        {:.4f} nats per token\nperplexity  {:.4f}\n"
                  "tokens      {}{} in windows of {}",
                  evaluation.loss, evaluation.perplexity,
                  with_thousands(static_cast<std::uint64_t>(evaluation.tokens)),
                  text_of(objective_of(request.source.spec)), request.settings.context));
}

void run_eval(const EvalOptions& options, const Console& console) {
  let_threads_sleep();
  set_compute_threads(options.threads);
  const EvalRequest request = make_request(options);
  const bool writes = !options.logits.empty();
  const std::int64_t windows =
      writes ? logits_windows(request.data, request.settings, request.source.spec)
             : evaluation_windows(request.data, request.settings, request.source.spec);
  const Transformer model = load_transformer(request.source, request.type, request.device);
  const auto begin = std::chrono::steady_clock::now();
  Progress progress(console, writes ? "logits" : "eval",
                    static_cast<std::uint64_t>(windows * request.settings.context), "tokens");
  const EvaluationProgress on_progress = [&](std::int64_t done, std::int64_t) {
    progress.update(static_cast<std::uint64_t>(done * request.settings.context));
  };
  if (writes) {
    write_logits(model, request.data, request.settings, options.logits, on_progress,
                 interrupt_requested());
    progress.finish();
    if (options.json) {
      console.print(text_of_json({{"model", options.model},
                                  {"data", options.data},
                                  {"logits", options.logits},
                                  {"windows", windows},
                                  {"context", request.settings.context}}));
    }
    console.note(fmt::format("wrote {}", printable(options.logits, 0)));
    return;
  }
  const Evaluation evaluation =
      evaluate(model, request.data, request.settings, on_progress, interrupt_requested());
  progress.finish();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  report(options, request, evaluation, elapsed.count(), console);
}

}  // namespace

void add_eval_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command =
      program.add_subcommand("eval", "Loss and perplexity of a model on a file of tokens");
  command->add_option("model", options->model, "model directory")->required();
  command->add_option("--data", options->data, "token file: raw u16, llm.c, or numpy")->required();
  command
      ->add_option("--context", options->context,
                   "tokens in a window (default: 1024, or the model's positions if fewer)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command->add_option("--batch", options->batch, "windows at a time")->check(CLI::PositiveNumber);
  command->add_option("--max-tokens", options->max_tokens, "stop after about so many tokens")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command->add_option("--device", options->device, "cpu, cuda or cuda:N");
  command->add_option("--dtype", options->precision, "fp32 or bf16");
  command->add_option("--threads", options->threads, "CPU threads (default: one per core)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  command
      ->add_option("--mask-token", options->mask_token,
                   "BERT-like models: the id of [MASK] or <mask> (default: the config's)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "BERT-like models: of the choice of masked tokens");
  command->add_option("--logits", options->logits,
                      "instead write the logits of consecutive windows, [windows, context, "
                      "vocabulary], to this safetensors file");
  command->add_flag("--json", options->json, "report as JSON");
  command->footer(
      "Example: regroup eval Llama-2-7b-gqa8 --data held_out.bin --context 2048\n"
      "What is predicted depends on the model. Decoders: every next token. BERT and its like: 15 "
      "%\n"
      "of the tokens of each window, of which 80 % are masked, 10 % replaced and 10 % left as "
      "they\n"
      "are; the same ones for the same seed. Encoder-decoders: the second half of each window,\n"
      "while the encoder reads the first; the decoder begins with its start token. --logits hides\n"
      "no token; of encoder-decoders it writes those of the second half.");
  command->callback(
      [options, &console] { with_torch_errors([&] { run_eval(*options, console); }); });
}

}  // namespace regroup
