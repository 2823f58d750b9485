// regroup calibrate DIR --data FILE -o STATS
#include "uptrain/train/calibrate.h"

#include <chrono>
#include <memory>

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/commands/convert_options.h"
#include "cli/measure/data_origin.h"
#include "cli/shell/command.h"
#include "cli/shell/devices.h"
#include "cli/shell/progress.h"
#include "cli/shell/quantity.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

struct CalibrateOptions {
  std::string model;
  std::string data;
  TextInput text;
  std::string output;
  std::int64_t context = 0;
  WindowSettings settings;
  std::string device = "cpu";
  int threads = 0;
  bool any_text = false;
  bool json = false;
};

void run_calibrate(const CalibrateOptions& options, const Console& console) {
  set_compute_threads(options.threads);
  check_output_name(options.output, "a safetensors file", {".safetensors"});
  const c10::Device device = parse_device(options.device);
  warn_of_device(device, console);
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_computable_model(options.model);
  WindowSettings settings = options.settings;
  ConvertOptions compute;  // as the conversion will read its text
  compute.refit.context = options.context;
  compute.device = options.device;
  compute.threads = options.threads;
  choose_windows(source, compute.refit);
  settings.context = compute.refit.context;
  warn_of_context(source, settings.context, console);
  check_data_origin(source, options.data, console);
  const TokenInput input(options.data, options.text, source, options.threads,
                         tokens_to_read(settings.max_tokens));
  if (!options.any_text) {
    check_is_predicted(source, input.path(), options.data.empty() ? "--text" : "--data", compute,
                       console);
  }
  const TokenFile data = input.open();
  const std::int64_t tokens = count_windows(data, settings) * settings.context;
  const auto layers = std::ssize(source.spec.layers) + std::ssize(source.spec.encoder_layers);
  Progress progress(console, "calibrate", layers, "layers");
  calibrate(
      source, data, settings, device, options.output,
      [&](std::int64_t done, std::int64_t) { progress.update(done); }, interrupt_requested());
  progress.finish();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (options.json) {
    console.print(text_of_json(
        {{"model", options.model},
         {"data", options.text.files.empty() ? options.data : options.text.files.front()},
         {"output", options.output},
         {"layers", layers},
         {"tokens", tokens},
         {"context", settings.context},
         {"seconds", elapsed.count()}}));
  }
  console.note(fmt::format("wrote {}: {} layers over {} tokens", printable(options.output, 0),
                           layers, with_thousands(tokens)));
}

}  // namespace

void add_calibrate_command(Command program, Console& console) {
  auto options = std::make_shared<CalibrateOptions>();
  Command command = add_whole_command(program, "calibrate");
  command.add_option("model", options->model, "model directory").required();
  command.add_option("--data", options->data, "token file: raw ids, llm.c, or numpy");
  add_text_input(command, options->text, "instead of --data: text files or JSON lines");
  command.add_option("-o,--output", options->output, "statistics file to make").required();
  add_count(
      command, "--context", options->context,
      "tokens in a window (default: 512, for encoders 128, or the model's positions if fewer)",
      {2, kMostContext})
      .default_text("");
  add_count(command, "--max-tokens", options->settings.max_tokens, "read about this many tokens");
  add_count(command, "--batch", options->settings.batch, "windows at a time", {1, kMostBatch});
  command.add_option("--device", options->device, "cpu, cuda or cuda:N");
  add_threads_option(command, options->threads);
  command.add_flag(kAnyTextOption, options->any_text, kAnyTextHelp);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup calibrate Llama-2-7b-hf --text articles.txt -o stats.safetensors\n"
      "Memory: one layer at a time, and 4 bytes per token and hidden feature.\n"
      "The file holds mean and covariance of each layer's inputs: 4 bytes per pair of features.");
  command.on_run(
      [options, &console] { with_torch_errors([&] { run_calibrate(*options, console); }); });
}

}  // namespace regroup
