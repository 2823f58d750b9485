#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/measure/data_origin.h"
#include "cli/measure/text_conversion.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "tokens/tokenizer.h"
#include "uptrain/model/device.h"
#include "uptrain/run/sample.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
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
        model, questions, fast_precision(device), device,
        [&](std::span<const std::uint32_t>) { progress.update(++done); }, interrupt_requested());
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

HeldOut compare_on_text(const Model& source, const ConvertOptions& options,
                        const PreparedText& text, const ConversionPlan& mean,
                        const std::string& result, const Console& console) {
  HeldOut report{.tokens = text.held_out * text.context, .context = text.context};
  std::vector<HeldOutModel>& models = report.models.emplace();
  const bool own = text.own_held_out > 0;
  const c10::Device device = parse_device(options.device);
  const std::size_t layers = source.spec.layers.size() + source.spec.encoder_layers.size();
  std::vector<std::string> names{"source", "mean", "result"};
  if (mean.request.positions != PositionChange::kKeep) {
    names.erase(names.begin() + 1);  // the mean of the source's heads is measured in the source
  }
  Progress progress(console, "evaluate", (own ? 2 : 1) * names.size() * layers, "layers");
  std::uint64_t done = 0;
  const auto measure = [&](const std::string& tokens, std::int64_t windows) {
    const TextQualityMeter meter(
        source, TokenFile::open(tokens), {.first = 0, .windows = windows, .context = text.context},
        device, interrupt_requested(), [&] { progress.update(++done); },
        scalar_type_of(fast_precision(device)));
    std::vector<TextQuality> found{meter.of_source()};
    if (names.size() > 2) {
      found.push_back(meter.of(mean));
    }
    found.push_back(meter.of(open_model(result)));
    return found;
  };
  with_torch_errors([&] {
    const auto given = measure(text.held_out_tokens, text.held_out);
    for (std::size_t i = 0; i < names.size(); ++i) {
      models.push_back({names[i], given[i].loss, given[i].cosine, given[i].divergence});
    }
    if (own) {
      const auto found = measure(text.own_held_out_tokens, text.own_held_out);
      for (std::size_t i = 0; i < names.size(); ++i) {
        models[i].own_divergence = found[i].divergence;
      }
      report.own_tokens = text.own_held_out * text.context;
    }
  });
  progress.finish();
  if (writes_text(source)) {
    run_or_note(console, "note: no answers are compared", [&] {  // which must not cost the table
      with_torch_errors(
          [&] { report.answers = answers_of(source, options, text, open_model(result), console); });
    });
  }
  return report;
}

}  // namespace regroup
