// regroup sample MODEL -o TOKENS, and regroup sample MODEL --prompt TEXT
#include "uptrain/run/sample.h"

#include "cli/commands/commands.h"
#include "cli/measure/data_origin.h"
#include "cli/measure/made_tokens.h"
#include "cli/shell/devices.h"
#include "formats/base/ranges.h"
#include "formats/model/serving_cost.h"
#include "formats/vocabulary/token_file.h"
#include "tokens/tokenizer.h"
#include "uptrain/model/language_model.h"

namespace regroup {
namespace {

using TokenSpan = std::span<const std::uint32_t>;

struct SampleOptions {
  std::string model;
  std::string output;
  std::string prompt;
  TextInput tokenizing;
  SampleSettings settings{.context = 0};
  std::string device = "cpu";
  std::optional<Precision> precision;  // none: the faster
  int threads = 0;
  bool chats = false;
  bool plain = false;
  bool json = false;
};

// Lines stay lines; all else that a terminal would obey is escaped.
std::string shown(const std::string& text) {
  return joined(split(text, '\n'), "\n", [](std::string_view line) { return printable(line, 0); });
}

// A text that is printed while it grows, up to its last word, which may still change.
class GrowingText {
 public:
  explicit GrowingText(const Console& console) : console_(console) {}

  void show(const std::string& text) {
    const std::size_t end = text.find_last_of(" \n");
    if (end != text.npos && end > printed_.size() && text.starts_with(printed_)) {
      console_.print_part(shown(text.substr(printed_.size(), end - printed_.size())));
      printed_ = text.substr(0, end);
    }
  }

  void finish(const std::string& text) const {
    console_.print(shown(text.substr(std::min(printed_.size(), text.size()))));
  }

 private:
  const Console& console_;
  std::string printed_;
};

// The tokens of the prompt: the user's turn of a chat, or the beginning of a text.
void put_prompt(const std::string& prompt, const Tokenizer& tokenizer,
                const std::optional<ChatForm>& chat, Continuation& text) {
  const DocumentEnds& ends = tokenizer.ends();
  if (chat) {
    text.prompt = asked_in(*chat, prompt, tokenizer);
    text.end = chat->to_user.front();
    return;
  }
  if (ends.add_bos && ends.bos) {
    text.prompt.push_back(static_cast<std::uint32_t>(*ends.bos));
  }
  tokenizer.encode(prompt, /*begins_document=*/true, text.prompt);
}

// Warns of a config that names fewer positions than --tokens needs.
void warn_of_length(const Model& source, const Continuation& text, const Console& console) {
  const std::int64_t prompt = std::ssize(text.prompt), whole = prompt + text.tokens;
  const auto most = longest_text(source.spec);
  if (!most) {
    console.notes("warning", {warning_of_positions(source, whole)});
  } else if (prompt < *most && *most < whole) {
    console.note(fmt::format("warning: --tokens: the model has {} positions, {} after the prompt",
                             *most, *most - prompt));
  }
}

// How the model goes on after `text`, of which `decoded` makes the text to print. Printed meanwhile
// if `growing` is not null, else with a progress bar.
std::vector<std::uint32_t> go_on(const Model& source, const Continuation& text, Precision precision,
                                 c10::Device device, const Console& console,
                                 const std::function<std::string(TokenSpan)>& decoded,
                                 GrowingText* growing) {
  const auto written = [&](const ContinuationObserver& after_token) {
    return continue_texts(source, {&text, 1}, precision, device, after_token, interrupt_requested())
        .front();
  };
  if (growing != nullptr) {
    return written([&](TokenSpan tokens) { growing->show(decoded(tokens)); });
  }
  Progress progress(console, "write", text.tokens, "tokens");
  std::vector<std::uint32_t> tokens =
      written([&](TokenSpan so_far) { progress.update(so_far.size()); });
  progress.finish();
  return tokens;
}

// Prints the prompt and how the model goes on, or its answer. Given numbers of tokens and
// temperatures are those of --tokens and --temperature.
void run_prompt(const SampleOptions& options, bool tokens_given, bool temperature_given,
                const Console& console) {
  set_compute_threads(options.threads);
  const c10::Device device = parse_device(options.device);
  const Precision precision = precision_or_fast(options.precision, device, console);
  const Model source = open_predicting_model(options.model);
  console.notes("warning", source.spec.contradictions);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, options.tokenizing);
  if (!options.tokenizing.tokenizer.empty()) {
    check_tokenizer(source, *tokenizer, console);
  }
  const std::optional<ChatForm> chat = options.plain ? std::nullopt : chat_form_of(*tokenizer);
  Continuation text;
  text.seed = options.settings.seed;
  text.tokens = tokens_given ? options.settings.tokens : text.tokens;
  text.temperature = temperature_given ? options.settings.temperature : text.temperature;
  put_prompt(options.prompt, *tokenizer, chat, text);
  warn_of_length(source, text, console);
  console.note(fmt::format("drawn at temperature {:g} in {}{}", text.temperature,
                           name_of(precision),
                           chat ? fmt::format("; the model answers by its chat template ({}), and "
                                              "continues the prompt with --plain",
                                              chat->name)
                                : ""));
  const auto decoded = [&](TokenSpan written) {
    std::vector<std::uint32_t> all = chat ? std::vector<std::uint32_t>() : text.prompt;
    append(all, written);
    return tokenizer->decode(all);
  };
  GrowingText growing(console);
  const bool grows = console.shows_results() && !options.json;
  const std::vector<std::uint32_t> written =
      go_on(source, text, precision, device, console, decoded, grows ? &growing : nullptr);
  const std::string whole = decoded(written);
  if (!options.json) {
    return growing.finish(whole);
  }
  console.print(text_of_json({{"model", options.model},
                              {"prompt", options.prompt},
                              {"text", whole},
                              {"chat", chat ? Json(chat->name) : Json()},
                              {"tokens", written.size()},
                              {"temperature", text.temperature},
                              {"dtype", name_of(precision)},
                              {"seed", text.seed}}));
}

void run_sample(const SampleOptions& options, const Console& console) {
  constexpr double kLeastTemperature = 0.01;
  if (options.settings.temperature < kLeastTemperature) {
    throw_usage("--temperature: a text to calibrate with varies: {} to 100 is allowed",
                kLeastTemperature);
  }
  set_compute_threads(options.threads);
  check_output_name(options.output, "a token file", {".bin"});
  const Model source = open_predicting_model(options.model);
  console.notes("warning", source.spec.contradictions);
  SampleSettings settings = options.settings;
  settings.device = parse_device(options.device);
  settings.precision = precision_or_fast(options.precision, settings.device, console);
  if (settings.context == 0) {
    settings.context = usual_context(source, SampleSettings().context);
  }
  if (options.chats) {
    settings.chat = chats_of(source, options.tokenizing, console);
    if (!settings.chat) {
      throw_usage("--chats: {}: no chat template of a known form", printable_path(source.path));
    }
  }
  write_samples(source, settings, options.output, console);
  const std::int64_t tokens = TokenFile::open(options.output).size();
  if (options.json) {
    console.print(text_of_json({{"model", options.model},
                                {"output", options.output},
                                {"tokens", tokens},
                                {"context", settings.context},
                                {"temperature", settings.temperature},
                                {"dtype", name_of(settings.precision)},
                                {"seed", settings.seed}}));
  }
  console.note(
      fmt::format("wrote {}: {} tokens", printable(options.output, 0), with_thousands(tokens)));
}

}  // namespace

void add_sample_command(Command program, Console& console) {
  auto options = std::make_shared<SampleOptions>();
  SampleSettings& settings = options->settings;
  Command command = add_whole_command(program, "sample");
  command.add_option("model", options->model, kModelHelp).required();
  command.add_option("-o,--output", options->output,
                     "token file to make: X.bin, with X.idx; must not exist yet");
  command
      .add_option("--prompt", options->prompt,
                  "text that the model answers, or continues if it has no chat template of a known "
                  "form; the result is printed instead of written to --output")
      .excludes("--output");
  command
      .add_flag("--plain", options->plain,
                "the model continues the text of --prompt, even if it could answer")
      .excludes("--output");
  command
      .add_flag("--chats", options->chats,
                "write chats in the form of the model's chat template, both the user's turns and "
                "the answers")
      .excludes("--prompt");
  command.add_option("--tokenizer", options->tokenizing.tokenizer,
                     "the tokenizer, as in regroup tokenize (default: the model's)");
  add_count(command, "--tokens", settings.tokens,
            "tokens to write, in whole windows (default: 131072; with --prompt, at most 128)");
  add_count(command, "--context", settings.context,
            "tokens in a window of text (default: 512, or the model's positions if fewer)",
            {2, kMostContext});
  add_count(command, "--batch", settings.batch,
            "windows at a time (default: up to 128, on a GPU up to 1024, by the memory)",
            {1, kMostBatch});
  add_number(command, "--temperature", settings.temperature,
             "softmax temperature that tokens are drawn at (default: 1; with --prompt, 0.7, and 0 "
             "takes the likeliest each time)",
             {0.0, 100.0});
  add_count(command, "--seed", settings.seed, "seed of the draws", kAnySeed);
  add_count(command, "--first-token", settings.first_token,
            "id of the token that each window begins with (default: the config's bos_token_id, or "
            "else its eos_token_id, or else none)",
            kAnyToken);
  add_word(command, "--dtype", options->precision, kFasterPrecision, kPrecisions, parse_precision);
  add_device_option(command, options->device);
  add_threads_option(command, options->threads);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Examples: regroup sample Llama-2-7b-gqa8 --prompt 'The capital of France is'\n"
      "          regroup sample Llama-2-7b-hf -o samples.bin --tokens 131072\n"
      "regroup convert --sample does this by itself; the file serves --refit, calibrate and "
      "uptrain.");
  command.on_run([options, command, &console] {
    if (!options->prompt.empty()) {
      run_prompt(*options, command.given("--tokens"), command.given("--temperature"), console);
    } else if (options->output.empty()) {
      throw_usage("--prompt, a text to continue, or --output, a file to make, is needed");
    } else {
      run_sample(*options, console);
    }
  });
}

}  // namespace regroup
