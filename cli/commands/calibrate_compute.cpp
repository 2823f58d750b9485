// regroup calibrate MODEL STATS --data FILE
#include "uptrain/train/calibrate.h"

#include "cli/commands/commands.h"
#include "cli/measure/conversion_options.h"
#include "cli/measure/data_origin.h"
#include "cli/shell/devices.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

struct CalibrateOptions {
  std::string model;
  std::string data;
  TextInput text;
  std::string output;
  WindowSettings settings;
  std::optional<Precision> precision;  // none: the faster
  ConvertOptions convert;              // how the conversion will read its text, and the machine
  bool json = false;
};

void run_calibrate(CalibrateOptions options, const Console& console) {
  ConvertOptions& convert = options.convert;
  set_compute_threads(convert.threads);
  check_output_name(options.output, "a safetensors file", {".safetensors"});
  const c10::Device device = parse_device(convert.device);
  const Precision precision = precision_or_fast(options.precision, device, console);
  const auto begin = std::chrono::steady_clock::now();
  const Model source = open_computable_model(options.model);
  choose_windows(source, convert.refit);
  WindowSettings& settings = options.settings;
  settings.context = convert.refit.context;
  warn_of_context(source, settings.context, console);
  check_data_origin(source, options.data, console);
  const TokenInput input(options.data, options.text, source, convert.threads,
                         tokens_to_read(settings.max_tokens));
  const TokenFile data = input.open();
  const std::int64_t tokens = count_windows(data, settings) * settings.context;
  if (!convert.any_text) {
    check_is_predicted(source, input.path(), options.data.empty() ? "--text" : "--data", convert,
                       console);
  }
  const auto layers = std::ssize(source.spec.layers) + std::ssize(source.spec.encoder_layers);
  Progress progress(console, "calibrate", layers, "layers");
  calibrate(source, data, settings, device, options.output, progress.callback(),
            interrupt_requested(), scalar_type_of(precision));
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
         {"dtype", name_of(precision)},
         {"seconds", elapsed.count()}}));
  }
  console.note(fmt::format("wrote {}: {} layers over {} tokens", printable(options.output, 0),
                           layers, with_thousands(tokens)));
}

}  // namespace

void add_calibrate_command(Command program, Console& console) {
  auto options = std::make_shared<CalibrateOptions>();
  Command command = add_whole_command(program, "calibrate");
  command.add_option("model", options->model, kModelHelp).required();
  command.add_option("--data", options->data,
                     "token file: raw ids, llm.c, numpy, or Megatron's .bin with its .idx");
  add_text_input(command, options->text, "instead of --data: text files or JSON lines");
  command
      .add_option("output,-o,--output", options->output,
                  "statistics file to make; must not exist yet")
      .required();
  add_count(command, "--context", options->convert.refit.context,
            "tokens in a window of text (default: 512, for encoders 128, or the model's positions "
            "if fewer)",
            {2, kMostContext});
  add_count(command, "--max-tokens", options->settings.max_tokens, "read about this many tokens");
  add_count(command, "--batch", options->settings.batch, "windows at a time", {1, kMostBatch});
  add_device_option(command, options->convert.device);
  add_word(command, "--dtype", options->precision, kFasterPrecision, kPrecisions, parse_precision);
  add_threads_option(command, options->convert.threads);
  command.add_flag(kAnyTextOption, options->convert.any_text, kAnyTextHelp);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup calibrate Llama-2-7b-hf stats.safetensors --text articles.txt\n"
      "Memory: one layer at a time, and 2 bytes (fp32: 4) per token and hidden feature.\n"
      "The file holds mean and covariance of each layer's inputs: 4 bytes per pair of features.");
  command.on_run(
      [options, &console] { with_torch_errors([&] { run_calibrate(*options, console); }); });
}

}  // namespace regroup
