#include "cli/measure/text_conversion.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/measure/data_origin.h"
#include "cli/measure/made_tokens.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/progress.h"
#include "cli/shell/quantity.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "converter/convert/attention_pooler.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/token_writer.h"
#include "uptrain/model/device.h"
#include "uptrain/run/sample.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/run_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// The share of text that the source writes itself. What it knew and the given text does not say is
// kept by it (docs/results.md).
constexpr double kOwnShare = 0.5;

// How much of a text is used, in tokens, the steps of refitting each attention, and the tokens that
// distillation trains on.
struct Effort {
  std::string_view name;
  std::int64_t tokens, held_out, distill_tokens, refit_steps;
  bool refits_before_distilling;  // which gains little for its time
};
constexpr std::array kEfforts{Effort{"quick", 32'768, 4'096, 32'768, 0, false},
                              Effort{"normal", 262'144, 8'192, 262'144, 100, false},
                              Effort{"thorough", 524'288, 16'384, 524'288, 300, true}};

constexpr std::int64_t kMostJudgingTokens = 4'096;

// The effort that distils on so many tokens: as quick or normal, whichever is nearer below.
Effort effort_by_tokens(const std::string& typed) {
  constexpr std::int64_t kFewest = 1'024;
  const auto tokens =
      static_cast<std::int64_t>(parse_count("--effort", typed, {kFewest, kMostCount}));
  Effort effort = kEfforts[tokens < kEfforts[1].tokens ? 0 : 1];
  effort.tokens = effort.distill_tokens = tokens;
  return effort;
}

Effort effort_of(const ConvertOptions::Text& text) {
  const auto named =
      std::ranges::find_if(kEfforts, [&](const auto& each) { return each.name == text.effort; });
  if (named == kEfforts.end() && !std::isdigit(static_cast<unsigned char>(text.effort.front()))) {
    throw_usage("--effort: {} is none of quick, normal and thorough, and no number of tokens",
                printable(text.effort));
  }
  Effort effort = named == kEfforts.end() ? effort_by_tokens(text.effort) : *named;
  effort.tokens = text.tokens.value_or(effort.tokens);
  return effort;
}

// An encoder needs many steps to come near its source (docs/results.md). Four times as many take a
// small one no longer than other models.
Effort effort_for(const Model& source, const ConvertOptions::Text& text) {
  constexpr std::int64_t kSmall = 25'000'000;  // weights in products
  Effort effort = effort_of(text);
  const bool named = !std::isdigit(static_cast<unsigned char>(text.effort.front()));
  if (named && !source.spec.causal && weights_in_products(source) < kSmall) {
    effort.tokens *= text.tokens ? 1 : 4;
    effort.distill_tokens *= 4;
  }
  return effort;
}

// The special tokens of an encoder's inputs. Its heads attend to them most, so that windows without
// them are nothing that it ever reads.
InputFrame frame_of(const Model& source, const TextInput& text) {
  if (source.spec.causal) {
    return {};
  }
  const DocumentEnds ends = open_tokenizer_of(source, text)->ends();
  return {.before = ends.add_bos ? ends.bos : std::nullopt,
          .after = ends.add_eos ? ends.eos : std::nullopt};
}

// The windows of the token file; an objective may need one token after the last.
std::int64_t windows_in(const TokenFile& data, std::int64_t context) {
  return (data.size() - 1) / context;
}

// Shares the windows of a token file between conversion and evaluation: the last ones are held out,
// and windows from all over the others are used. `own_share`: of the windows, that the source
// writes.
void share_windows(const TokenFile& text, const Effort& effort, double own_share,
                   std::int64_t batch, PreparedText& prepared) {
  const std::int64_t context = prepared.context;
  const std::int64_t all = windows_in(text, context - prepared.frame.size());
  const std::int64_t fewest = 2 * batch + 1;  // refitting holds out a batch of its own
  if (all < fewest) {
    throw_bad_input("--text: {} tokens are too few; {} windows of {} tokens are needed, better {}",
                    text.size(), fewest, context, with_thousands(effort.tokens + effort.held_out));
  }
  prepared.held_out = std::clamp<std::int64_t>(all / 10, 1, (effort.held_out - 1) / context + 1);
  const std::int64_t wanted = (effort.tokens - 1) / context + 1;
  prepared.own_windows = std::llround(own_share * static_cast<double>(wanted));
  prepared.windows =
      std::clamp<std::int64_t>(wanted - prepared.own_windows, 1, all - prepared.held_out);
}

// A window of a token file.
struct Window {
  const TokenFile* file;
  std::int64_t number;
};

// Writes windows, and the token after the last of them, as a file of their own. `frame`: what is
// added around each.
std::string write_windows(const PreparedText& prepared, const char* name, std::int64_t vocabulary,
                          const std::vector<Window>& windows, const InputFrame& frame = {}) {
  const fs::path path = prepared.files->path() / name;
  TokenWriter writer(path, TokenLayout::kMegatron, vocabulary);
  const std::int64_t inside = prepared.context - frame.size();
  const auto append = [&](const Window& window, std::int64_t count) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    window.file->read(window.number * inside, ids);
    writer.write(std::vector<std::uint32_t>(ids.begin(), ids.end()));
  };
  const auto append_special = [&](std::optional<std::int64_t> id) {
    if (id) {
      writer.write(std::vector{static_cast<std::uint32_t>(*id)});
    }
  };
  for (const Window& window : windows) {
    append_special(frame.before);
    append(window, inside);
    append_special(frame.after);
  }
  append({windows.back().file, windows.back().number + 1}, 1);
  writer.publish();
  return path.string();
}

std::vector<Window> windows_from(const TokenFile& file, std::int64_t first, std::int64_t count) {
  std::vector<Window> windows;
  for (std::int64_t number = first; number < first + count; ++number) {
    windows.push_back({&file, number});
  }
  return windows;
}

// Writes the files of conversion and of evaluation. `text`: what was tokenized.
void divide_text(const TokenFile& text, std::int64_t vocabulary, PreparedText& prepared) {
  const InputFrame& frame = prepared.frame;
  const std::int64_t usable = windows_in(text, prepared.context - frame.size()) - prepared.held_out;
  const auto windows = mapped(spread_windows(usable, prepared.windows),
                              [&](std::int64_t number) -> Window { return {&text, number}; });
  prepared.tokens = write_windows(prepared, "convert.bin", vocabulary, windows, frame);
  prepared.held_out_tokens = write_windows(prepared, "held-out.bin", vocabulary,
                                           windows_from(text, usable, prepared.held_out), frame);
}

// Shares the windows of conversion between learning and judging.
void write_distillation_text(const ModelSpec& spec, PreparedText& prepared) {
  const std::int64_t judging = std::clamp<std::int64_t>(
      prepared.windows / 10, 1, (kMostJudgingTokens - 1) / prepared.context + 1);
  const std::int64_t learning = prepared.windows - judging;
  const TokenFile tokens = TokenFile::open(prepared.tokens);
  prepared.learning =
      write_windows(prepared, "learn.bin", spec.vocab_size, windows_from(tokens, 0, learning));
  prepared.judging = write_windows(prepared, "judge.bin", spec.vocab_size,
                                   windows_from(tokens, learning, judging));
}

// The text that the source writes itself: chats if the form of its chats is known.
fs::path write_own_text(const Model& source, const ConvertOptions& options, std::int64_t tokens,
                        PreparedText& prepared, const Console& console) {
  const c10::Device device = parse_device(options.device);
  SampleSettings settings;
  settings.tokens = tokens;
  settings.context = prepared.context;
  settings.precision = fast_precision(device);
  settings.device = device;
  settings.chat = chats_of(source, options.text.input, console);
  if (settings.chat && 2 * std::ssize(settings.chat->form.opening) > prepared.context) {
    settings.chat.reset();  // no room for turns
  }
  if (settings.chat) {
    prepared.chat = settings.chat->form;
  }
  const fs::path kept = RunDirectory::path_for(options.destination) / kOwnText;
  if (options.text.resume && path_exists(kept)) {
    prepared.own = kept;
  } else {
    prepared.own = prepared.files->path() / kOwnText;
    write_samples(source, settings, prepared.own, console);
  }
  return prepared.own;
}

// Puts windows of the source's own text between those of the given one, evenly.
void mix_in(const TokenFile& own, std::int64_t vocabulary, PreparedText& prepared) {
  const TokenFile given = TokenFile::open(prepared.tokens);
  const std::int64_t all = prepared.windows + prepared.own_windows;
  std::vector<Window> windows;
  for (std::int64_t i = 0, own_ones = 0; i < all; ++i) {
    const bool is_own = (i + 1) * prepared.own_windows / all > own_ones;
    windows.push_back(is_own ? Window{&own, own_ones} : Window{&given, i - own_ones});
    own_ones += is_own ? 1 : 0;
  }
  prepared.tokens = write_windows(prepared, "mixed.bin", vocabulary, windows);
  prepared.own_held_out_tokens =
      write_windows(prepared, "own-held-out.bin", vocabulary,
                    windows_from(own, prepared.own_windows, prepared.own_held_out));
  prepared.windows = all;
}

// The share of the source's own text: that of the options, or kOwnShare if the source writes text
// token by token. Throws kUsage for a share without effect.
double own_share_of(const Model& source, const ConvertOptions& options) {
  const ConvertOptions::Text& text = options.text;
  if (text.samples || !writes_text(source)) {
    if (text.own_share.value_or(0.0) > 0.0) {
      throw_usage("--own-text: {}", text.samples ? "--sample takes no other text"
                                                 : "the source does not write text token by token");
    }
    return 0.0;
  }
  return text.own_share.value_or(kOwnShare);
}

std::int64_t distill_steps_of(const ConvertOptions& options, const Effort& effort) {
  return options.text.distills()
             ? options.text.distill_steps.value_or(
                   (effort.distill_tokens - 1) / (options.refit.batch * options.refit.context) + 1)
             : 0;
}

// What --sample is going to write, without a text.
PreparedText planned_sample(const Model& source, const ConvertOptions& options) {
  const Effort effort = effort_for(source, options.text);
  PreparedText planned;
  planned.context = options.refit.context;
  planned.windows = (effort.tokens - 1) / planned.context + 1;
  planned.held_out = (effort.held_out - 1) / planned.context + 1;
  planned.distill_steps = distill_steps_of(options, effort);
  return planned;
}

// The windows of the text that the effort uses, and how many the source will write.
PreparedText take_windows(const Model& source, const ConvertOptions& options,
                          const Console& console) {
  check_computable("--text", source);
  const Effort effort = effort_for(source, options.text);
  const double own_share = own_share_of(source, options);
  PreparedText prepared;
  prepared.context = options.refit.context;
  prepared.files = std::make_unique<StagedDirectory>(options.destination + ".text");
  fs::path whole = prepared.files->path() / "text.bin";
  const std::int64_t used = effort.tokens + effort.held_out;
  if (options.text.samples) {
    whole = write_own_text(source, options, used + 1, prepared, console);
  } else {
    write_tokens(source, options.text.input, options.threads, tokens_to_read(used), whole);
  }
  const TokenFile tokens = TokenFile::open(whole);
  prepared.frame = frame_of(source, options.text.input);
  if (prepared.context <= prepared.frame.size()) {
    throw_usage("--refit-context: {} tokens leave no room between the model's special tokens",
                prepared.context);
  }
  share_windows(tokens, effort, own_share, options.refit.batch, prepared);
  divide_text(tokens, source.spec.vocab_size, prepared);
  if (prepared.own_windows > 0) {
    prepared.own_held_out =
        std::min(prepared.held_out, (kMostJudgingTokens - 1) / prepared.context + 1);
  }
  prepared.distill_steps = distill_steps_of(options, effort);
  return prepared;
}

// Sets the numbers of windows and of steps of distillation, and unless in a dry run, lets the
// source write its share of the text, mixes it in and divides the text for distillation. A share of
// 0 leaves the text as it is.
void complete_text(const Model& source, const ConvertOptions& options, PreparedText& prepared,
                   const Console& console) {
  if (prepared.own_windows > 0 && !options.dry_run) {
    set_compute_threads(options.threads);
    const std::int64_t tokens =
        (prepared.own_windows + prepared.own_held_out) * prepared.context + 1;
    mix_in(TokenFile::open(write_own_text(source, options, tokens, prepared, console)),
           source.spec.vocab_size, prepared);
  } else {
    prepared.windows += prepared.own_windows;
  }
  if (options.text.distills() && !options.dry_run) {
    write_distillation_text(source.spec, prepared);
  }
}

// What the result is made from: the text without the windows that distillation is judged on.
const std::string& learned_from(const PreparedText& prepared) {
  return prepared.learning.empty() ? prepared.tokens : prepared.learning;
}

std::int64_t tokens_learned_from(const PreparedText& prepared) {
  return prepared.context *
         (prepared.learning.empty()
              ? prepared.windows
              : windows_in(TokenFile::open(prepared.learning), prepared.context));
}

// Calibrates the source on the text. Returns the path of the statistics, one of prepared.files.
std::string calibrate_on_text(const Model& source, const ConvertOptions& options,
                              const PreparedText& prepared, const Console& console) {
  set_compute_threads(options.threads);
  const TokenFile data = TokenFile::open(learned_from(prepared));
  WindowSettings windows;
  windows.context = prepared.context;
  windows.max_tokens =
      std::min(calibration_tokens(source, options, prepared.windows * prepared.context),
               tokens_learned_from(prepared));
  const fs::path output = prepared.files->path() / "statistics.safetensors";
  const std::size_t layers = source.spec.layers.size() + source.spec.encoder_layers.size();
  Progress progress(console, "calibrate", layers, "layers");
  const c10::Device device = parse_device(options.device);
  with_torch_errors([&] {
    calibrate(source, data, windows, device, output, progress.callback(), interrupt_requested(),
              scalar_type_of(fast_precision(device)));
  });
  progress.finish();
  return output.string();
}

// Whether a change of basis is possible, so that heads can be solved for.
bool can_solve(const ModelSpec& spec) { return !spec.clip_qkv && spec.not_computable.empty(); }

// Refuses options of refitting if nothing is refitted.
void check_refit_options(const Model& source, const ConvertOptions& options) {
  const bool refits = refit_steps_of(options) > 0;
  if (refits && options.request.positions != PositionChange::kKeep) {
    throw_usage("--refit-steps: with other positions, nothing fits the source's outputs");
  }
  if (refits && can_refit(source.spec)) {
    return;
  }
  const bool batches = options.text.distills() || options.given("--kv-budget");
  const bool none = options.given("--refit-steps") && options.refit.steps == 0;
  for (const char* option : {"--refit-steps", "--refit-lr", "--refit-batch"}) {
    const bool used = (batches && option == std::string_view("--refit-batch")) ||
                      (none && option == std::string_view("--refit-steps"));
    if (options.given(option) && !used) {
      refuse_without_effect(
          option, refits ? "this model cannot be refitted" : "refitting needs --refit-steps here");
    }
  }
}

// Sets what --text implies for refitting, unless it is given.
void refit_on(const PreparedText& text, const ModelSpec& spec, ConvertOptions& options,
              const Console& console) {
  const std::int64_t steps = refit_steps_of(options);
  if (steps == 0) {
    return;
  }
  if (!can_refit(spec)) {
    console.note(fmt::format(
        "note: --text: no refitting: {} normalises keys with separate weights for each head",
        printable(spec.architecture)));
    return;
  }
  options.refit.data = learned_from(text);
  options.refit.steps = steps;
  // Refitting keeps the hidden states of all its tokens: more than its steps read are of no use.
  const std::int64_t read = steps * options.refit.batch * text.context;
  options.refit.max_tokens = std::min(tokens_learned_from(text), read + read / 4);
}

// Decides on distillation. It needs much memory, so that only --distill-steps insists on it.
void choose_distillation(const Model& source, ConvertOptions& options, const Console& console) {
  if (!options.text.distills()) {
    return;
  }
  const std::string reason =
      why_not_distilled(source, plan_conversion(source, options.request), options);
  if (reason.empty()) {
    return;
  }
  if (options.given("--distill-steps")) {
    throw_usage("--distill-steps: no distillation: {}", reason);
  }
  console.note(fmt::format("warning: --text: no distillation, which gains most: {}", reason));
  options.text.distill_steps = 0;
}

// Refuses to begin where a stopped distillation could go on, and to go on where there is none.
void check_run(const ConvertOptions& options) {
  if (options.text.resume && !options.text.distills()) {
    refuse_without_effect("--resume", "nothing is distilled");
  }
  if (options.text.distills() && !options.dry_run) {
    RunDirectory::check_output(options.destination, options.text.resume);
  }
}

bool checks_text(const Model& source, const ConvertOptions& options) {
  return !options.any_text && !options.text.samples && writes_text(source);
}

// The labels of what shows its progress.
std::vector<std::string> stages_of(const Model& source, const ConvertOptions& options) {
  const bool refits = can_refit(source.spec) && refit_steps_of(options) > 0;
  const bool mixes = own_share_of(source, options) > 0.0;
  const std::pair<const char*, bool> all[] = {{"sample", options.text.samples},
                                              {"check text", checks_text(source, options)},
                                              {"sample", mixes},
                                              {"calibrate", options.calibrates()},
                                              {"measure", options.budget.given()},
                                              {"group", options.grouping == "similar"},
                                              {refits ? "refit" : "convert", true},
                                              {"distill", options.text.distills()},
                                              {"evaluate", true},
                                              {"answer", writes_text(source)}};
  std::vector<std::string> stages;
  for (const auto& [label, there] : all) {
    if (there && !options.dry_run) {
      stages.emplace_back(label);
    }
  }
  return stages;
}

// What is going to be done with the text.
std::string work_on(const PreparedText& text, const ConvertOptions& options) {
  const auto tokens_in = [&](std::int64_t windows) {
    return with_thousands(windows * text.context);
  };
  const std::string refit =
      options.refit.data.empty()
          ? ""
          : fmt::format("; refitting: {} steps for each attention layer", options.refit.steps);
  const std::string distillation =
      text.distill_steps == 0 ? "" : fmt::format("; distillation: {} steps", text.distill_steps);
  const std::string own =
      text.own_windows == 0
          ? ""
          : fmt::format(", {} of them written by the source{}", tokens_in(text.own_windows),
                        text.chat ? " as chats (" + text.chat->name + ")" : "");
  return fmt::format("text      {} tokens to convert with{}; {} held out{}{}",
                     tokens_in(text.windows), own, tokens_in(text.held_out), refit, distillation);
}

// Tokens that were read before teach little, and a short text is outweighed by the source's own.
void advise_more_text(const Model& source, const PreparedText& text, const ConvertOptions& options,
                      const Console& console) {
  constexpr double kMostPasses = 4.0, kMuchMore = 0.1;
  const double written = static_cast<double>(text.own_windows) / static_cast<double>(text.windows);
  const double own_share = own_share_of(source, options);
  if (written > own_share + kMuchMore) {
    console.note(fmt::format(
        "note: the text is shorter than its share: the source writes {:.0f} % of what is converted "
        "with, not {:.0f} %",
        100 * written, 100 * own_share));
  }
  const double passes = static_cast<double>(text.distill_steps * options.refit.batch) /
                        static_cast<double>(text.windows);
  if (passes > kMostPasses) {
    console.note(fmt::format(
        "note: distillation reads the text {:.0f} times: more text{} gains more than more steps",
        passes,
        writes_text(source) ? ", or a larger share that the source writes (--own-text)," : ""));
  }
}

}  // namespace

std::int64_t refit_steps_of(const ConvertOptions& options) {
  if (options.given("--refit-steps")) {
    return options.refit.steps;
  }
  if (options.request.positions != PositionChange::kKeep) {
    return 0;  // the source's outputs are those of its own positions
  }
  const Effort effort = effort_of(options.text);
  return effort.refits_before_distilling || !options.text.distills() ? effort.refit_steps : 0;
}

PreparedText prepare_text(const Model& source, ConvertOptions& options, Console& console) {
  if (!options.given("--pool") && can_solve(source.spec)) {
    options.request.pooling.method = PoolMethod::kLowrank;
  }
  if (options.given("--refit-tokens")) {
    options.text.tokens = options.refit.max_tokens;
  }
  choose_distillation(source, options, console);
  for (const char* option : {"--distill-lr", "--distill-attention"}) {
    if (options.given(option) && !options.text.distills()) {
      refuse_without_effect(option, "nothing is distilled");
    }
  }
  check_refit_options(source, options);
  check_run(options);
  console.set_stages(stages_of(source, options));
  console.notes("note", device_notes(parse_device(options.device)));
  const bool only_planned = options.text.samples && options.dry_run && !options.budget.given();
  if (options.text.samples) {
    check_writes_text(source);
    console.note("expected  " + expected_cost(source, options, planned_sample(source, options)));
  }
  PreparedText text =
      only_planned ? planned_sample(source, options) : take_windows(source, options, console);
  if (!options.text.samples) {
    console.note("expected  " + expected_cost(source, options, text));
  }
  if (checks_text(source, options) && !options.dry_run) {
    check_is_predicted(source, text.tokens, "--text", options, console);
  }
  complete_text(source, options, text, console);
  if (options.dry_run && options.budget.given() && text.own_windows > 0) {
    console.note(
        "note: --dry-run: the source writes no text of its own, so that the command itself may "
        "divide the budget otherwise");
  }
  if (options.budget.given() && options.budget.data.empty()) {
    options.budget.data = learned_from(text);
    options.budget.max_tokens = std::min(options.budget.max_tokens, tokens_learned_from(text));
  }
  refit_on(text, source.spec, options, console);
  if (text.distill_steps > 0) {
    options.request.pooling.distillation = distillation_recipe(text, options);
  }
  console.note(work_on(text, options));
  advise_more_text(source, text, options, console);
  if (options.calibrates() && !options.dry_run) {
    options.calibration = calibrate_on_text(source, options, text, console);
  }
  return text;
}

}  // namespace regroup
