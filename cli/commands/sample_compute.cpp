// regroup sample MODEL -o TOKENS
#include "uptrain/run/sample.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/measure/precision_warning.h"
#include "cli/measure/sampled_text.h"
#include "cli/shell/command.h"
#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "formats/base/printable.h"
#include "formats/model/serving_cost.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

struct SampleOptions {
  std::string model;
  std::string output;
  SampleSettings settings{.context = 0};
  std::string device = "cpu";
  std::string precision;
  int threads = 0;
  bool json = false;
};

void run_sample(const SampleOptions& options, const Console& console) {
  set_compute_threads(options.threads);
  check_output_name(options.output, "a token file", {".bin"});
  const Model source = open_predicting_model(options.model);
  SampleSettings settings = options.settings;
  settings.device = parse_device(options.device);
  settings.precision = options.precision.empty() ? fast_precision(settings.device)
                                                 : parse_precision(options.precision);
  warn_of_precision(settings.precision, settings.device, console);
  if (settings.context == 0) {
    settings.context = usual_context(source, SampleSettings().context);
  }
  write_samples(source, settings, options.output, console);
  const std::int64_t tokens = TokenFile::open(options.output).size();
  if (options.json) {
    console.print(text_of_json({{"model", options.model},
                                {"output", options.output},
                                {"tokens", tokens},
                                {"context", settings.context},
                                {"temperature", settings.temperature},
                                {"seed", settings.seed}}));
  }
  console.note(fmt::format("wrote {}: {} tokens", printable(options.output, 0),
                           with_thousands(static_cast<std::uint64_t>(tokens))));
}

}  // namespace

void add_sample_command(Command program, Console& console) {
  auto options = std::make_shared<SampleOptions>();
  SampleSettings& settings = options->settings;
  Command command = add_whole_command(program, "sample");
  command.add_option("model", options->model, "model directory").required();
  command.add_option("-o,--output", options->output, "token file to make: X.bin, with X.idx")
      .required();
  add_count(command, "--tokens", settings.tokens, "tokens to write, in whole sequences");
  add_count(command, "--context", settings.context,
            "tokens in a sequence (default: 512, or the model's positions if fewer)",
            {2, kMostContext})
      .default_text("");
  add_count(command, "--batch", settings.batch, "sequences at a time", {1, kMostBatch});
  add_number(command, "--temperature", settings.temperature,
             "softmax temperature that tokens are drawn at", {0.01, 100.0});
  add_count(command, "--seed", settings.seed, "seed of the draws", kAnySeed);
  add_count(command, "--first-token", settings.first_token,
            "the token that each sequence begins with (default: the config's bos_token_id, or "
            "else its eos_token_id, or else none)",
            kAnyToken);
  command
      .add_option("--dtype", options->precision,
                  "dtype to compute in: fp32 or bf16 (default: the faster)")
      .one_of({"fp32", "bf16"});
  command.add_option("--device", options->device, "cpu, cuda or cuda:N");
  add_threads_option(command, options->threads);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup sample Llama-2-7b-hf -o samples.bin --tokens 131072\n"
      "regroup convert --sample does this by itself; the file serves --refit, calibrate and "
      "uptrain.");
  command.on_run([options, &console] { run_sample(*options, console); });
}

}  // namespace regroup
