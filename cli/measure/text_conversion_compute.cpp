#include "cli/measure/text_conversion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/measure/data_origin.h"
#include "cli/measure/made_tokens.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/vocabulary/token_writer.h"
#include "tokens/tokenizer.h"
#include "uptrain/model/device.h"
#include "uptrain/run/sample.h"
#include "uptrain/run/training_speed.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

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

Effort effort_of(const ConvertOptions::Text& text) {
  Effort effort = *std::find_if(kEfforts.begin(), kEfforts.end(),
                                [&](const Effort& each) { return each.name == text.effort; });
  effort.tokens = text.tokens.value_or(effort.tokens);
  return effort;
}

// The most tokens that calibrate_on_text() reads. Statistics hardly gain from more
// (docs/results.md), which take their time.
std::int64_t calibration_tokens(const ModelSpec& spec) {
  return std::max<std::int64_t>(32'768, 64 * spec.hidden_size);
}

std::uint64_t layers_of(const ModelSpec& spec) {
  return spec.layers.size() + spec.encoder_layers.size();
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
  const std::int64_t all = windows_in(text, context);
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

// Writes windows, and the token after the last of them, as a file of their own.
std::string write_windows(const PreparedText& prepared, const char* name, std::int64_t vocabulary,
                          const std::vector<Window>& windows) {
  const fs::path path = prepared.files->path() / name;
  TokenWriter writer(path, TokenLayout::kMegatron, vocabulary);
  const auto append = [&](const Window& window, std::int64_t count) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    window.file->read(window.number * prepared.context, ids);
    writer.write(std::vector<std::uint32_t>(ids.begin(), ids.end()));
  };
  for (const Window& window : windows) {
    append(window, prepared.context);
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
  const std::int64_t usable = windows_in(text, prepared.context) - prepared.held_out;
  std::vector<Window> windows;
  for (const std::int64_t number : spread_windows(usable, prepared.windows)) {
    windows.push_back({&text, number});
  }
  prepared.tokens = write_windows(prepared, "convert.bin", vocabulary, windows);
  prepared.held_out_tokens = write_windows(prepared, "held-out.bin", vocabulary,
                                           windows_from(text, usable, prepared.held_out));
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
  fs::path path = prepared.files->path() / "own.bin";
  write_samples(source, settings, path, console);
  return path;
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

}  // namespace

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

std::int64_t refit_steps_of(const ConvertOptions& options) {
  if (options.given("--refit-steps")) {
    return options.refit.steps;
  }
  const Effort effort = effort_of(options.text);
  return effort.refits_before_distilling || !options.text.distills() ? effort.refit_steps : 0;
}

PreparedText prepare_text(const Model& source, const ConvertOptions& options,
                          const Console& console) {
  check_computable("--text", source);
  const Effort effort = effort_of(options.text);
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
  share_windows(tokens, effort, own_share, options.refit.batch, prepared);
  divide_text(tokens, source.spec.vocab_size, prepared);
  if (prepared.own_windows > 0) {
    prepared.own_held_out =
        std::min(prepared.held_out, (kMostJudgingTokens - 1) / prepared.context + 1);
  }
  if (options.text.distills()) {
    prepared.distill_steps = options.text.distill_steps.value_or(
        (effort.distill_tokens - 1) / (options.refit.batch * prepared.context) + 1);
  }
  return prepared;
}

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

namespace {

// A stage that passes `tokens` through the model takes `work` times as long for each as a large
// matrix product of as many operations (measured with SmolLM2-135M on a CPU; measuring takes what
// evaluating takes for each of its three models).
struct Stage {
  std::string_view label;
  std::int64_t tokens;
  double work;
};

// Measuring the layers for --kv-budget in passes through the whole model: one of the source, and
// for each number of kv heads that a layer may get, this layer and those after it, and the output
// head of the source and of the changed model.
double passes_to_measure(const ModelSpec& spec) {
  const auto layers = static_cast<double>(spec.kv_heads.size());
  const double head = static_cast<double>(spec.vocab_size * spec.embedding_width()) /
                      static_cast<double>(multiplied_weights(spec));
  double passes = 1.0;
  for (std::size_t layer = 0; layer < spec.kv_heads.size(); ++layer) {
    const double rest = layers - static_cast<double>(layer);
    for (std::int64_t count = 1; count < spec.kv_heads[layer]; ++count) {
      passes += spec.kv_heads[layer] % count == 0 ? rest / layers * (1.0 - head) + 2.0 * head : 0.0;
    }
  }
  return passes;
}

std::array<Stage, 6> stages_with(const Model& source, const ConvertOptions& options,
                                 const PreparedText& text) {
  const std::int64_t step = options.refit.batch * text.context;
  const std::int64_t calibrated =
      std::min((text.windows + text.own_windows) * text.context, calibration_tokens(source.spec));
  const std::int64_t refit_steps = can_refit(source.spec) ? refit_steps_of(options) : 0;
  const std::int64_t measured =
      options.budget.given()
          ? std::min(options.budget.max_tokens, (text.windows + text.own_windows) * text.context)
          : 0;
  return {{{"sample", (text.own_windows + text.own_held_out) * text.context, 3.4},
           {"calibrate", options.calibrates() ? calibrated : 0, 1.8},
           {"measure", measured, 2.5 * passes_to_measure(source.spec)},
           {"refit", refit_steps * step, 2.0},
           {"distill", text.distill_steps * step, 7.5},
           {"evaluate", (text.held_out + text.own_held_out) * text.context, 7.5}}};
}

// On a GPU, a step of writing takes this long for each layer (measured on an H100), however fast
// products are.
double least_seconds_of_writing(const Model& source, std::int64_t tokens, std::int64_t context,
                                c10::Device device) {
  constexpr double kSecondsOfLayer = 1.4e-4;
  const std::int64_t batch = usual_sampling_batch(source, context, device);
  const auto steps =
      static_cast<double>((tokens - 1) / (batch * context) + 1) * static_cast<double>(context);
  return steps * kSecondsOfLayer * static_cast<double>(source.spec.layer_count());
}

}  // namespace

std::string expected_cost(const Model& source, const ConvertOptions& options,
                          const PreparedText& text) {
  const c10::Device device = parse_device(options.device);
  set_compute_threads(options.threads);
  const double product = matmul_flops_per_second(scalar_type_of(fast_precision(device)), device);
  const Task task = evaluation_task(source, text.context).value_or(Task{});
  const double pass = training_flops_per_token(source.spec, task, text.context) / 3;
  double total = 0.0;
  std::vector<std::string> parts;
  for (const Stage& stage : stages_with(source, options, text)) {
    double seconds = static_cast<double>(stage.tokens) * stage.work * pass / product;
    if (stage.label == "sample" && stage.tokens > 0 && !device.is_cpu()) {
      seconds =
          std::max(seconds, least_seconds_of_writing(source, stage.tokens, text.context, device));
    }
    total += seconds;
    if (stage.tokens > 0) {
      parts.push_back(fmt::format("{} {}", stage.label, text_of_duration(seconds)));
    }
  }
  std::string expected =
      fmt::format("about {} ({})", text_of_duration(total), fmt::join(parts, ", "));
  if (text.distill_steps > 0) {
    expected += fmt::format("; {} of memory", text_of_bytes(bytes_to_distill(source, options)));
  }
  return expected;
}

std::string calibrate_on_text(const Model& source, const ConvertOptions& options,
                              const PreparedText& prepared, const Console& console) {
  set_compute_threads(options.threads);
  const TokenFile data = TokenFile::open(prepared.tokens);
  WindowSettings windows;
  windows.context = prepared.context;
  windows.max_tokens =
      std::min(prepared.windows * prepared.context, calibration_tokens(source.spec));
  const fs::path output = prepared.files->path() / "statistics.safetensors";
  Progress progress(console, "calibrate", layers_of(source.spec), "layers");
  with_torch_errors([&] {
    calibrate(
        source, data, windows, parse_device(options.device), output,
        [&](std::int64_t done, std::int64_t) { progress.update(done); }, interrupt_requested());
  });
  progress.finish();
  return output.string();
}

namespace {

constexpr std::int64_t kAnswers = 2;
constexpr std::int64_t kAnswerTokens = 40;
constexpr std::int64_t kPromptTokens = 24;  // of a text that is no chat

// The user's first turn in a chat; empty if it was cut off.
std::vector<std::uint32_t> first_turn(const std::vector<std::uint32_t>& ids, const ChatForm& chat) {
  const auto begin = ids.begin() + std::min(std::ssize(chat.opening), std::ssize(ids));
  const auto end = std::search(begin, ids.end(), chat.to_answer.begin(), chat.to_answer.end());
  return end == ids.end() ? std::vector<std::uint32_t>() : std::vector<std::uint32_t>(begin, end);
}

// What the models are asked: the beginnings of held-out windows.
std::vector<Continuation> questions_of(const PreparedText& text) {
  const bool own = text.own_held_out > 0;
  const TokenFile file = TokenFile::open(own ? text.own_held_out_tokens : text.held_out_tokens);
  std::vector<Continuation> questions;
  for (std::int64_t window = 0;
       window < (own ? text.own_held_out : text.held_out) && std::ssize(questions) < kAnswers;
       ++window) {
    std::vector<std::int64_t> read(static_cast<std::size_t>(
        text.chat ? text.context : std::min(kPromptTokens, text.context / 2)));
    file.read(window * text.context, read);
    Continuation question;
    question.tokens = kAnswerTokens;
    question.temperature = 0.0;
    question.prompt.assign(read.begin(), read.end());
    if (text.chat) {
      const auto turn = first_turn(question.prompt, *text.chat);
      if (turn.empty()) {
        continue;
      }
      question.prompt.resize(text.chat->opening.size() + turn.size() + text.chat->to_answer.size());
      question.end = text.chat->to_user.front();
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

// How source and result go on after the same words.
std::vector<HeldOutAnswer> answers_of(const Model& source, const ConvertOptions& options,
                                      const PreparedText& text, const Model& result,
                                      const Console& console) {
  const std::vector<Continuation> questions = questions_of(text);
  const c10::Device device = parse_device(options.device);
  Progress progress(console, "answer", 2 * questions.size() * kAnswerTokens, "tokens");
  std::uint64_t done = 0;
  const auto answers = [&](const Model& model) {
    return continue_texts(
        model, questions, fast_precision(device), device, [&] { progress.update(++done); },
        interrupt_requested());
  };
  const auto of_source = answers(source), of_result = answers(result);
  progress.finish();
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, options.text.input);
  std::vector<HeldOutAnswer> list;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto& prompt = questions[i].prompt;
    list.push_back({tokenizer->decode(text.chat ? first_turn(prompt, *text.chat) : prompt),
                    tokenizer->decode(of_source[i]), tokenizer->decode(of_result[i])});
  }
  return list;
}

}  // namespace

bool answers_questions(const Model& source) { return writes_text(source); }

HeldOut compare_on_text(const Model& source, const ConvertOptions& options,
                        const PreparedText& text, const ConversionPlan& mean,
                        const std::string& result, const Console& console) {
  HeldOut report{.tokens = text.held_out * text.context, .context = text.context};
  std::vector<HeldOutModel>& models = report.models.emplace();
  const bool own = text.own_held_out > 0;
  Progress progress(console, "evaluate", (own ? 6 : 3) * layers_of(source.spec), "layers");
  std::uint64_t done = 0;
  const auto measure = [&](const std::string& tokens, std::int64_t windows) {
    const TextQualityMeter meter(
        source, TokenFile::open(tokens), {.first = 0, .windows = windows, .context = text.context},
        parse_device(options.device), interrupt_requested(), [&] { progress.update(++done); });
    return std::array{meter.of_source(), meter.of(mean), meter.of(open_model(result))};
  };
  with_torch_errors([&] {
    constexpr std::array kNames{"source", "mean", "result"};
    const auto given = measure(text.held_out_tokens, text.held_out);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      models.push_back({kNames[i], given[i].loss, given[i].cosine, given[i].divergence});
    }
    if (own) {
      const auto found = measure(text.own_held_out_tokens, text.own_held_out);
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        models[i].own_divergence = found[i].divergence;
      }
      report.own_tokens = text.own_held_out * text.context;
    }
  });
  progress.finish();
  if (answers_questions(source)) {
    try {
      report.answers = answers_of(source, options, text, open_model(result), console);
    } catch (const Error& fault) {  // which must not cost the table
      if (fault.kind() == ErrorKind::kInterrupted) {
        throw;
      }
      console.note(fmt::format("note: no answers are compared: {}", fault.what()));
    }
  }
  return report;
}

}  // namespace regroup
