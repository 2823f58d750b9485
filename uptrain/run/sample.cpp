// Shapes: B sequences of T tokens, V vocabulary.
#include "uptrain/run/sample.h"

#include <algorithm>
#include <deque>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/decode.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/text_infilling.h"

namespace regroup {
namespace {

// None if the config names none.
std::optional<std::int64_t> first_token_of(const Model& source, const SampleSettings& settings) {
  std::optional<std::int64_t> first = settings.first_token;
  for (const auto& token : {start_token_of(source), end_token_of(source)}) {
    first = first ? first : token;
  }
  if (first && (*first < 0 || *first >= source.spec.vocab_size)) {
    throw_usage("{}: the first token {} is not in the vocabulary of {} tokens",
                printable_path(source.path), *first, source.spec.vocab_size);
  }
  return first;
}

void check_can_sample(const Model& source, const SampleSettings& settings) {
  check_writes_text(source);
  if (settings.chat && std::ssize(settings.chat->form.opening) >= settings.context) {
    throw_usage("a chat begins with {} tokens, windows have {}", settings.chat->form.opening.size(),
                settings.context);
  }
  if (settings.context < 2) {
    throw_usage("windows of {} tokens are too short", settings.context);
  }
}

at::Generator generator_of(std::uint64_t seed, c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

// Draws one token for each row of logits, [B, V] -> int64 [B, 1] on the CPU. Of tokens less likely
// than `min_p` times the likeliest, none. One random number a row decides among its cumulative
// shares; at::multinomial() takes one for each token, on a single thread.
at::Tensor draw(const at::Tensor& logits, double temperature, at::Generator& generator,
                double min_p = 0.0) {
  at::Tensor shares = (logits.to(at::kFloat) / temperature).softmax(-1);
  if (min_p > 0.0) {
    shares.masked_fill_(shares < min_p * shares.amax(-1, /*keepdim=*/true), 0.0);
  }
  const at::Tensor below = shares.cumsum(-1, at::kDouble);  // [B, V]
  const at::Tensor whole = below.narrow(-1, below.size(-1) - 1, 1);
  const at::Tensor point = at::rand(whole.sizes(), generator, whole.options()) * whole;
  at::Tensor drawn =
      at::searchsorted(below, point, /*out_int32=*/false, /*right=*/true).to(at::kCPU);
  if (drawn.max().item<std::int64_t>() >= logits.size(-1)) {
    throw_bad_input("the model's predictions are not numbers");  // no share is above NaN
  }
  return drawn;
}

// Writes one sequence and keeps its place in the chat. Without a chat, all tokens are drawn.
class Writer {
 public:
  Writer(const ChatSettings* chat, std::span<const std::int64_t> ends) : chat_(chat), ends_(ends) {}

  // The next token, if `drawn` is what the model would write.
  std::int64_t next(std::int64_t drawn) {
    if (chat_ != nullptr && given_.empty() && ends_turn(drawn)) {
      const auto& between = answers_ ? chat_->form.to_user : chat_->form.to_answer;
      given_.assign(between.begin(), between.end());
      answers_ = !answers_;
      in_turn_ = 0;
    }
    if (given_.empty()) {
      ++in_turn_;
      return drawn;
    }
    const std::int64_t given = given_.front();
    given_.pop_front();
    return given;
  }

 private:
  bool ends_turn(std::int64_t drawn) const {
    return drawn == chat_->form.to_answer.front() || drawn == chat_->form.to_user.front() ||
           contains(ends_, drawn) ||
           in_turn_ == (answers_ ? chat_->answer_tokens : chat_->user_tokens);
  }

  const ChatSettings* chat_;
  std::span<const std::int64_t> ends_;
  std::deque<std::int64_t> given_;  // tokens to come, whatever is drawn
  bool answers_ = false;            // whose turn it is
  std::int64_t in_turn_ = 0;        // tokens drawn
};

// What the sequences of all batches share.
struct Sampling {
  const SampleSettings& settings;
  std::optional<std::int64_t> first;  // token of a sequence
  std::vector<std::int64_t> ends;     // of a text
  at::Generator generator;
  std::function<void(std::int64_t)> progress;  // may be empty
  std::int64_t done = 0;                       // tokens of earlier batches
};

// The tokens that the sequences of a batch begin with, [B, T].
at::Tensor beginning(std::int64_t vocabulary, std::int64_t batch, Sampling& sampling) {
  const SampleSettings& settings = sampling.settings;
  if (settings.chat) {
    const std::vector<std::int64_t> opening(settings.chat->form.opening.begin(),
                                            settings.chat->form.opening.end());
    return at::tensor(opening).view({1, -1}).repeat({batch, 1});
  }
  const at::Tensor second =
      at::randint(0, vocabulary, {batch, 1}, sampling.generator,
                  at::TensorOptions(at::kLong).device(sampling.settings.device))
          .to(at::kCPU);
  return sampling.first ? at::cat({at::full({batch, 1}, *sampling.first, at::kLong), second}, 1)
                        : second;
}

// [B, T] on the CPU.
at::Tensor write_batch(const Transformer& model, std::int64_t batch, Sampling& sampling,
                       const std::atomic<bool>& stop) {
  const SampleSettings& settings = sampling.settings;
  const ChatSettings* chat = settings.chat ? &*settings.chat : nullptr;
  KvCache cache = model.make_cache({.batch = batch, .capacity = settings.context});
  const at::Tensor begin = beginning(model.spec().vocab_size, batch, sampling);
  // All at once: what stays from each step would lie where the next step needs the whole room.
  const at::Tensor tokens = at::empty({batch, settings.context}, at::kLong);
  tokens.narrow(1, 0, begin.size(1)).copy_(begin);
  std::vector<Writer> writers(static_cast<std::size_t>(batch), Writer(chat, sampling.ends));
  at::Tensor logits = read_tokens(model, begin.to(settings.device), cache, settings.context);
  for (std::int64_t length = begin.size(1); length < settings.context; ++length) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    at::Tensor next =
        draw(logits, settings.temperature, sampling.generator, chat != nullptr ? chat->min_p : 0.0);
    std::int64_t* ids = next.mutable_data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < writers.size(); ++row) {
      ids[row] = writers[row].next(ids[row]);
    }
    tokens.narrow(1, length, 1).copy_(next);
    if (length + 1 < settings.context) {
      logits = read_tokens(model, next.to(settings.device), cache, 1);
    }
    call_if_given(sampling.progress, sampling.done + batch * (length + 1));
  }
  sampling.done += batch * settings.context;
  return tokens;
}

void pass_on(const at::Tensor& tokens, const SequenceSink& sink) {
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    const at::Tensor ids = tokens.select(0, row).contiguous();
    const std::int64_t* begin = ids.const_data_ptr<std::int64_t>();
    sink(std::vector<std::uint32_t>(begin, begin + ids.numel()));
  }
}

// The tokens to write, no more than the model has positions for.
std::int64_t room_of(const Model& source, const Continuation& text) {
  const auto prompt = static_cast<std::int64_t>(text.prompt.size());
  const std::int64_t most = longest_text(source.spec).value_or(prompt + text.tokens);
  if (prompt < 1 || prompt >= most) {
    throw_usage("{}: a prompt of {} tokens; from 1 to {} are possible", printable_path(source.path),
                prompt, most - 1);
  }
  return std::min(text.tokens, most - prompt);
}

std::vector<std::uint32_t> continue_text(const Transformer& model, const Continuation& text,
                                         std::int64_t room, std::span<const std::int64_t> ends,
                                         const ContinuationObserver& after_token,
                                         const std::atomic<bool>& stop) {
  at::Generator generator = generator_of(text.seed, model.device());
  const std::vector<std::int64_t> ids(text.prompt.begin(), text.prompt.end());
  KvCache cache = model.make_cache({.batch = 1, .capacity = std::ssize(ids) + room});
  at::Tensor logits =
      read_tokens(model, at::tensor(ids).view({1, -1}).to(model.device()), cache, std::ssize(ids));
  std::vector<std::uint32_t> written;
  while (std::ssize(written) < room) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    const at::Tensor next = text.temperature > 0 ? draw(logits, text.temperature, generator)
                                                 : logits.argmax(-1, true).to(at::kCPU);
    const auto id = next.item<std::int64_t>();
    if (contains(ends, id) || id == text.end) {
      break;
    }
    written.push_back(static_cast<std::uint32_t>(id));
    call_if_given(after_token, std::span<const std::uint32_t>(written));
    if (std::ssize(written) < room) {
      logits = read_tokens(model, next.to(model.device()), cache, 1);
    }
  }
  return written;
}

}  // namespace

std::int64_t usual_sampling_batch(const Model& source, std::int64_t context, c10::Device device) {
  constexpr double kShare = 0.2;
  const std::int64_t fewest = device.is_cpu() ? 8 : 64;
  const std::int64_t most = device.is_cpu() ? 128 : 1'024;
  const auto cost = kv_cache_cost(source.spec, DType::kBF16);
  const auto whole = whole_memory(device);
  if (!cost || !whole) {
    return 64;
  }
  const double bytes =
      std::max(1.0, static_cast<double>(cost->at(static_cast<std::uint64_t>(context))));
  return static_cast<std::int64_t>(
      std::clamp(kShare * *whole / bytes, static_cast<double>(fewest), static_cast<double>(most)));
}

std::optional<std::int64_t> longest_text(const ModelSpec& spec) {
  return spec.has_position_table() || spec.limited_to_positions ? spec.max_positions : std::nullopt;
}

void check_writes_text(const Model& source) {
  if (objective_of(source.spec) != Objective::kNextToken) {
    throw_usage("{}: {} does not write text token by token; name a text instead",
                printable_path(source.path), printable(source.spec.architecture));
  }
  check_predicts(source);
}

bool writes_text(const Model& source) {
  return source.missing_head.empty() && objective_of(source.spec) == Objective::kNextToken;
}

void sample(const Model& source, const SampleSettings& settings, const SequenceSink& sink,
            const std::function<void(std::int64_t)>& progress, const std::atomic<bool>& stop) {
  check_can_sample(source, settings);
  Sampling sampling{settings, first_token_of(source, settings), end_tokens_of(source),
                    generator_of(settings.seed, settings.device), progress};
  const std::int64_t sequences = (settings.tokens - 1) / settings.context + 1;
  const std::int64_t most = settings.batch > 0
                                ? settings.batch
                                : usual_sampling_batch(source, settings.context, settings.device);
  with_torch_errors([&] {
    const at::NoGradGuard no_gradients;
    const Transformer model =
        load_transformer(source, scalar_type_of(settings.precision), settings.device);
    for (std::int64_t done = 0; done < sequences;) {
      const std::int64_t batch = std::min(most, sequences - done);
      pass_on(write_batch(model, batch, sampling, stop), sink);
      done += batch;
    }
  });
}

std::vector<std::vector<std::uint32_t>> continue_texts(const Model& source,
                                                       std::span<const Continuation> texts,
                                                       Precision precision, c10::Device device,
                                                       const ContinuationObserver& after_token,
                                                       const std::atomic<bool>& stop) {
  check_writes_text(source);
  const std::vector<std::int64_t> ends = end_tokens_of(source);
  std::vector<std::vector<std::uint32_t>> written;
  with_torch_errors([&] {
    const at::NoGradGuard no_gradients;
    const Transformer model = load_transformer(source, scalar_type_of(precision), device);
    for (const Continuation& text : texts) {
      written.push_back(continue_text(model, text, room_of(source, text), ends, after_token, stop));
    }
  });
  return written;
}

}  // namespace regroup
