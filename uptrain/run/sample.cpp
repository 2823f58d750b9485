// Shapes: B sequences of T tokens, V vocabulary.
#include "uptrain/run/sample.h"

#include <algorithm>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
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
                printable(source.path.string(), 0), *first, source.spec.vocab_size);
  }
  return first;
}

void check_writes_text(const Model& source) {
  check_predicts(source);
  if (objective_of(source.spec) != Objective::kNextToken) {
    throw_usage("{}: {} does not write text token by token; name a text instead",
                printable(source.path.string(), 0), printable(source.spec.architecture));
  }
}

void check_can_sample(const Model& source, const SampleSettings& settings) {
  check_writes_text(source);
  if (settings.context < 2) {
    throw_usage("sequences of {} tokens are too short", settings.context);
  }
}

// Draws one token for each row of logits, [B, V] -> int64 [B, 1] on the CPU.
at::Tensor draw(const at::Tensor& logits, double temperature, at::Generator& generator) {
  const at::Tensor wide = logits.to(at::kCPU, at::kFloat) / temperature;
  return at::multinomial(wide.softmax(-1), 1, /*replacement=*/false, generator);
}

// [B, T] on the CPU.
at::Tensor write_batch(const Transformer& model, const SampleSettings& settings,
                       std::optional<std::int64_t> first, std::int64_t batch,
                       at::Generator& generator, const std::atomic<bool>& stop) {
  KvCacheSettings slots;
  slots.batch = batch;
  slots.capacity = settings.context;
  KvCache cache = model.make_cache(slots);
  std::vector<at::Tensor> tokens;
  if (first) {
    tokens.push_back(at::full({batch, 1}, *first, at::kLong));
  }
  tokens.push_back(at::randint(0, model.spec().vocab_size, {batch, 1}, generator, at::kLong));
  at::Tensor logits =
      read_tokens(model, at::cat(tokens, 1).to(settings.device), cache, settings.context);
  while (static_cast<std::int64_t>(tokens.size()) < settings.context) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    tokens.push_back(draw(logits, settings.temperature, generator));
    logits = read_tokens(model, tokens.back().to(settings.device), cache, 1);
  }
  return at::cat(tokens, 1);
}

void pass_on(const at::Tensor& tokens, const SequenceSink& sink) {
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    const at::Tensor ids = tokens.select(0, row).contiguous();
    const std::int64_t* begin = ids.const_data_ptr<std::int64_t>();
    sink(std::vector<std::uint32_t>(begin, begin + ids.numel()));
  }
}

}  // namespace

void sample(const Model& source, const SampleSettings& settings, const SequenceSink& sink,
            const std::function<void(std::int64_t)>& progress, const std::atomic<bool>& stop) {
  check_can_sample(source, settings);
  const std::optional<std::int64_t> first = first_token_of(source, settings);
  const std::int64_t sequences = (settings.tokens - 1) / settings.context + 1;
  with_torch_errors([&] {
    const at::NoGradGuard no_gradients;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(settings.seed);
    const Transformer model =
        load_transformer(source, scalar_type_of(settings.precision), settings.device);
    for (std::int64_t done = 0; done < sequences;) {
      const std::int64_t batch = std::min(settings.batch, sequences - done);
      pass_on(write_batch(model, settings, first, batch, generator, stop), sink);
      done += batch;
      call_if_given(progress, done * settings.context);
    }
  });
}

namespace {

// The tokens to write, no more than the model has positions for.
std::int64_t room_of(const Model& source, const Continuation& text) {
  const auto prompt = static_cast<std::int64_t>(text.prompt.size());
  const std::int64_t most = source.spec.max_positions.value_or(prompt + text.tokens);
  if (prompt < 1 || prompt >= most) {
    throw_usage("{}: a prompt of {} tokens; from 1 to {} are possible",
                printable(source.path.string(), 0), prompt, most - 1);
  }
  return std::min(text.tokens, most - prompt);
}

}  // namespace

std::vector<std::uint32_t> continue_text(const Model& source, const Continuation& text,
                                         Precision precision, c10::Device device,
                                         const std::function<void(std::int64_t)>& progress,
                                         const std::atomic<bool>& stop) {
  check_writes_text(source);
  const std::int64_t room = room_of(source, text);
  const std::optional<std::int64_t> end = end_token_of(source);
  std::vector<std::uint32_t> written;
  with_torch_errors([&] {
    const at::NoGradGuard no_gradients;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(text.seed);
    const Transformer model = load_transformer(source, scalar_type_of(precision), device);
    const std::vector<std::int64_t> ids(text.prompt.begin(), text.prompt.end());
    KvCacheSettings slots;
    slots.batch = 1;
    slots.capacity = std::ssize(ids) + room;
    KvCache cache = model.make_cache(slots);
    at::Tensor logits =
        read_tokens(model, at::tensor(ids).view({1, -1}).to(device), cache, std::ssize(ids));
    while (std::ssize(written) < room) {
      throw_if_stopped(stop, "interrupted; nothing was left behind");
      const at::Tensor next = text.temperature > 0 ? draw(logits, text.temperature, generator)
                                                   : logits.argmax(-1, true).to(at::kCPU);
      const auto id = next.item<std::int64_t>();
      if (id == end) {
        break;
      }
      written.push_back(static_cast<std::uint32_t>(id));
      call_if_given(progress, std::ssize(written));
      if (std::ssize(written) < room) {
        logits = read_tokens(model, next.to(device), cache, 1);
      }
    }
  });
  return written;
}

}  // namespace regroup
