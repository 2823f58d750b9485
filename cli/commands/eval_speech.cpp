#include "cli/commands/eval_speech.h"

#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "cli/process/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "uptrain/evaluate/speech.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

void report(const SpeechEvalOptions& options, const SpeechFile& file, const Evaluation& evaluation,
            double seconds, const Console& console) {
  if (options.json) {
    console.print(text_of_json({{"model", options.model},
                                {"features", options.features},
                                {"loss", evaluation.loss},
                                {"perplexity", evaluation.perplexity},
                                {"tokens", evaluation.tokens},
                                {"samples", file.samples()},
                                {"seconds", seconds}}));
    return;
  }
  console.print(
      fmt::format("loss        {:.4f} nats per token\nperplexity  {:.4f}\n"
                  "tokens      {} of {} spectra",
                  evaluation.loss, evaluation.perplexity,
                  with_thousands(static_cast<std::uint64_t>(evaluation.tokens)),
                  with_thousands(static_cast<std::uint64_t>(file.samples()))));
}

void write_logits_of(const SpeechEvalOptions& options, const Transformer& model,
                     const SpeechFile& file, const EvaluationProgress& progress,
                     const Console& console) {
  write_speech_logits(model, file, options.batch, options.logits, progress, interrupt_requested());
  if (options.json) {
    console.print(text_of_json({{"model", options.model},
                                {"features", options.features},
                                {"logits", options.logits},
                                {"samples", file.samples()}}));
  }
  console.note(fmt::format("wrote {}", printable(options.logits, 0)));
}

}  // namespace

void add_features_option(Command command, std::string& features) {
  Option option = command.add_option(
      "--features", features,
      "Whisper, instead of --data: a safetensors file with log-mel spectra, features [N, bands, "
      "frames], and what is said in them, tokens [N, T]");
  for (const char* other :
       {"--data", "--text", "--context", "--documents", "--max-tokens", "--objective",
        "--first-sentinel", "--end-token", "--mask-token", "--seed"}) {
    option.excludes(other);
  }
}

void run_speech_eval(const SpeechEvalOptions& options, const Console& console) {
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_speech_model(options.model);
  const SpeechFile file(options.features, source.spec);
  const Transformer model = load_transformer(
      source, scalar_type_of(parse_precision(options.precision)), parse_device(options.device));
  Progress progress(console, "eval", static_cast<std::uint64_t>(file.samples()), "spectra");
  const EvaluationProgress on_progress = [&](std::int64_t done, std::int64_t) {
    progress.update(static_cast<std::uint64_t>(done));
  };
  if (!options.logits.empty()) {
    write_logits_of(options, model, file, on_progress, console);
    return;
  }
  const Evaluation evaluation =
      evaluate_speech(model, file, options.batch, on_progress, interrupt_requested());
  progress.finish();
  if (!std::isfinite(evaluation.loss)) {
    throw_bad_input("{}: the loss on {} is {}: NaN or infinity in the weights or in the features",
                    printable(options.model, 0), printable(options.features, 0), evaluation.loss);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  report(options, file, evaluation, seconds.count(), console);
}

}  // namespace regroup
