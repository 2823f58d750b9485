#include "cli/measure/text_conversion.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "cli/measure/sampled_text.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/token_writer.h"
#include "uptrain/model/device.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/data_loader.h"
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

// Statistics hardly gain from more tokens than this (docs/results.md), which take their time.
std::int64_t calibration_tokens(const ModelSpec& spec) {
  return std::max<std::int64_t>(32'768, 64 * spec.hidden_size);
}

Effort effort_of(const TextOptions& text) {
  Effort effort = *std::find_if(kEfforts.begin(), kEfforts.end(),
                                [&](const Effort& each) { return each.name == text.effort; });
  effort.tokens = text.tokens.value_or(effort.tokens);
  return effort;
}

std::uint64_t layers_of(const ModelSpec& spec) {
  return spec.layers.size() + spec.encoder_layers.size();
}

// The windows of the token file; an objective may need one token after the last.
std::int64_t windows_in(const TokenFile& data, std::int64_t context) {
  return (data.size() - 1) / context;
}

// Shares the windows of a token file between conversion and evaluation: the last ones are held out,
// and windows from all over the others are used.
void share_windows(const TokenFile& text, const Effort& effort, std::int64_t batch,
                   PreparedText& prepared) {
  const std::int64_t context = prepared.context;
  const std::int64_t all = windows_in(text, context);
  const std::int64_t fewest = 2 * batch + 1;  // refitting holds out a batch of its own
  if (all < fewest) {
    throw_bad_input("--text: {} tokens are too few; {} windows of {} tokens are needed, better {}",
                    text.size(), fewest, context,
                    with_thousands(static_cast<std::uint64_t>(effort.tokens + effort.held_out)));
  }
  prepared.held_out = std::clamp<std::int64_t>(all / 10, 1, (effort.held_out - 1) / context + 1);
  prepared.windows = std::min(all - prepared.held_out, (effort.tokens - 1) / context + 1);
}

std::vector<std::int64_t> windows_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Writes windows of the text, and the token after the last of them, as a file of their own.
std::string write_windows(const PreparedText& prepared, const char* name, std::int64_t vocabulary,
                          const TokenFile& text, std::span<const std::int64_t> numbers) {
  const fs::path path = prepared.files->path() / name;
  TokenWriter writer(path, TokenLayout::kMegatron, vocabulary);
  const auto append = [&](std::int64_t window, std::int64_t count) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    text.read(window * prepared.context, ids);
    writer.write(std::vector<std::uint32_t>(ids.begin(), ids.end()));
  };
  for (const std::int64_t window : numbers) {
    append(window, prepared.context);
  }
  append(numbers.back() + 1, 1);
  writer.publish();
  return path.string();
}

// Writes the files of conversion and of evaluation. `text`: what was tokenized.
void divide_text(const TokenFile& text, std::int64_t vocabulary, PreparedText& prepared) {
  const std::int64_t usable = windows_in(text, prepared.context) - prepared.held_out;
  prepared.tokens = write_windows(prepared, "convert.bin", vocabulary, text,
                                  spread_windows(usable, prepared.windows));
  prepared.held_out_tokens = write_windows(prepared, "held-out.bin", vocabulary, text,
                                           windows_from(usable, prepared.held_out));
}

// Shares the windows of conversion between learning and judging, and sets the number of steps.
void prepare_distillation(const ModelSpec& spec, const TextOptions& text, std::int64_t batch,
                          PreparedText& prepared) {
  const std::int64_t judging = std::clamp<std::int64_t>(
      prepared.windows / 10, 1, (kMostJudgingTokens - 1) / prepared.context + 1);
  const std::int64_t learning = prepared.windows - judging;
  prepared.distill_steps = text.distill_steps.value_or(
      (effort_of(text).distill_tokens - 1) / (batch * prepared.context) + 1);
  prepared.distill_rate = text.distill_rate;
  prepared.distill_attention = text.distill_attention;
  const TokenFile tokens = TokenFile::open(prepared.tokens);
  prepared.learning =
      write_windows(prepared, "learn.bin", spec.vocab_size, tokens, windows_from(0, learning));
  prepared.judging = write_windows(prepared, "judge.bin", spec.vocab_size, tokens,
                                   windows_from(learning, judging));
}

}  // namespace

bool refits_by_default(const TextOptions& text) {
  const Effort effort = effort_of(text);
  return effort.refit_steps > 0 && (effort.refits_before_distilling || !text.distills());
}

PreparedText prepare_text(const Model& source, const TextOptions& text, const RefitOptions& refit,
                          const std::string& destination, const Console& console) {
  check_computable("--text", source);
  const Effort effort = effort_of(text);
  PreparedText prepared;
  prepared.context = context_of(source, refit);
  prepared.refit_steps = refits_by_default(text) ? effort.refit_steps : 0;
  prepared.device = refit.device;
  prepared.files = std::make_unique<StagedDirectory>(destination + ".text");
  const fs::path whole = prepared.files->path() / "text.bin";
  const std::int64_t used = effort.tokens + effort.held_out;
  if (text.samples) {
    const c10::Device device = parse_device(refit.device);
    write_samples(source,
                  {.tokens = used + 1,
                   .context = prepared.context,
                   .precision = fast_precision(device),
                   .device = device},
                  whole, console);
  } else {
    write_tokens(source, text.input, refit.threads, tokens_to_read(used), whole);
  }
  const TokenFile tokens = TokenFile::open(whole);
  share_windows(tokens, effort, refit.batch, prepared);
  divide_text(tokens, source.spec.vocab_size, prepared);
  if (text.distills()) {
    prepare_distillation(source.spec, text, refit.batch, prepared);
  }
  return prepared;
}

void calibrate_on_text(const Model& source, const RefitOptions& refit, PreparedText& prepared,
                       const Console& console) {
  set_compute_threads(refit.threads);
  const TokenFile data = TokenFile::open(prepared.tokens);
  WindowSettings windows;
  windows.context = prepared.context;
  windows.max_tokens =
      std::min(prepared.windows * prepared.context, calibration_tokens(source.spec));
  const fs::path output = prepared.files->path() / "statistics.safetensors";
  Progress progress(console, "calibrate", layers_of(source.spec), "layers");
  with_torch_errors([&] {
    calibrate(
        source, data, windows, parse_device(refit.device), output,
        [&](std::int64_t done, std::int64_t) { progress.update(static_cast<std::uint64_t>(done)); },
        interrupt_requested());
  });
  progress.finish();
  prepared.statistics = output.string();
}

HeldOut compare_on_text(const Model& source, const PreparedText& text, const ConversionPlan& mean,
                        const std::string& result, const Console& console) {
  HeldOut report{.tokens = text.held_out * text.context, .context = text.context};
  std::vector<HeldOutModel>& models = report.models.emplace();
  Progress progress(console, "evaluate", 3 * layers_of(source.spec), "layers");
  std::uint64_t done = 0;
  with_torch_errors([&] {
    const TokenFile data = TokenFile::open(text.held_out_tokens);
    const TextQualityMeter meter(
        source, data, {.first = 0, .windows = text.held_out, .context = text.context},
        parse_device(text.device), interrupt_requested(), [&] { progress.update(++done); });
    const auto add = [&](const char* model, const TextQuality& quality) {
      models.push_back({model, quality.loss, quality.cosine});
    };
    add("source", meter.of_source());
    add("mean", meter.of(mean));
    add("result", meter.of(open_model(result)));
  });
  progress.finish();
  return report;
}

}  // namespace regroup
