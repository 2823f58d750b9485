#include "uptrain/train/text_quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>

#include "converter/convert/execute_plan.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/measurements.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/data_loader.h"

namespace regroup {

namespace {

constexpr std::int64_t kMeasuredTokens = 2048;
constexpr std::int64_t kCountedTokens = std::int64_t{1} << 20;
constexpr std::int64_t kCountedWindow = 4096;

}  // namespace

double entropy_of_frequencies(const TokenFile& text) {
  std::unordered_map<std::int64_t, double> counts;
  const std::int64_t width = std::min(kCountedWindow, text.size());
  const std::int64_t all = text.size() / width;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(width));
  double tokens = 0.0;
  for (const std::int64_t window :
       spread_windows(all, std::min(all, kCountedTokens / kCountedWindow))) {
    text.read(window * width, ids);
    for (const std::int64_t id : ids) {
      counts[id] += 1.0;
    }
    tokens += static_cast<double>(width);
  }
  double entropy = (static_cast<double>(counts.size()) - 1.0) / (2.0 * tokens);
  for (const auto& [id, count] : counts) {
    entropy -= count / tokens * std::log(count / tokens);
  }
  return entropy;
}

std::optional<TextChance> compare_with_chance(const Model& model, const TokenFile& text,
                                              std::int64_t context, c10::Device device,
                                              const std::atomic<bool>& stop,
                                              std::function<void()> after_layer,
                                              at::ScalarType type) {
  const auto task = evaluation_task(model, context);
  const std::int64_t windows = (text.size() - 1) / context;
  if (!task || task->objective != Objective::kNextToken || windows < 1) {
    return std::nullopt;
  }
  const WindowRange part{.windows = std::clamp<std::int64_t>(kMeasuredTokens / context, 1, windows),
                         .context = context,
                         .spread_over = windows};
  const TextQualityMeter meter(model, text, part, device, stop, std::move(after_layer), type);
  return TextChance{meter.predicted_tokens(), meter.of_source().loss.value(),
                    std::log(static_cast<double>(model.spec.vocab_size)),
                    entropy_of_frequencies(text)};
}

// Shapes: N predictions of a model, n of them at a time, D hidden size, V vocabulary.

namespace {

// In fp64, several times: 128 MiB each.
constexpr std::int64_t kLogitsAtOnce = 16 << 20;

std::size_t layers_of(const Model& model) {
  return model.spec.layers.size() + model.spec.encoder_layers.size();
}

// What the last layer returns for all windows, with each block as `change`, unless empty, makes it.
Batches last_hidden(const Model& model, const Batches& windows, c10::Device device,
                    at::ScalarType type, const std::function<Block(const LayerWalk& walk)>& change,
                    const std::function<void()>& layer_done, const std::atomic<bool>& stop) {
  LayerWalk walk(model, windows, device, type);
  while (walk.next()) {
    if (change) {
      walk.set_block(change(walk));
    }
    walk.run({}, stop);
    call_if_given(layer_done);
  }
  return walk.hidden();
}

// Computes the inputs of all predictions of a model: [N, D] and [V, D].
LmHeadInputs run(const Model& model, const Batches& windows, c10::Device device,
                 const std::function<void()>& layer_done, const std::atomic<bool>& stop) {
  const Batches last = last_hidden(model, windows, device, at::kFloat, {}, layer_done, stop);
  const OutputHead head(model, device);
  LmHeadInputs inputs;
  Batches parts;
  for (const at::Tensor& hidden : last) {
    inputs = head.lm_head_inputs(hidden);
    parts.push_back(inputs.hidden);
  }
  inputs.hidden = at::cat(parts, 0);
  return inputs;
}

// Adds n predictions. Means are sums until the end. Both inputs: [n, V] in fp64.
void add(PredictionComparison& sum, const at::Tensor& source, const at::Tensor& result) {
  const at::Tensor expected = at::log_softmax(source, 1);
  const at::Tensor kl = (expected.exp() * (expected - at::log_softmax(result, 1))).sum(1);
  const at::Tensor difference = (source - result).abs();
  const at::Tensor agreement = source.argmax(1).eq(result.argmax(1)).sum().to(at::kDouble);
  const at::Tensor numbers = at::stack({kl.sum(), kl.max(), difference.mean(1).sum(),
                                        difference.max(), source.abs().max(), agreement})
                                 .to(at::kCPU);  // waits once for a device
  const double* found = numbers.const_data_ptr<double>();
  sum.tokens += source.size(0);
  sum.kl += found[0];
  sum.largest_kl = larger(sum.largest_kl, found[1]);
  sum.mean_difference += found[2];
  sum.largest_difference = larger(sum.largest_difference, found[3]);
  sum.largest_logit = larger(sum.largest_logit, found[4]);
  sum.agreement += found[5];
}

// How many predictions are compared at a time.
std::int64_t predictions_at_once(std::int64_t vocab_size) {
  return std::max<std::int64_t>(1, kLogitsAtOnce / vocab_size);
}

std::vector<std::int64_t> numbers_of_windows(const WindowRange& part) {
  if (part.spread_over > 0) {
    return spread_windows(part.spread_over, part.windows);
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(part.windows));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

std::size_t steps_to_compare(const Model& source, const Model& result, const Batches& windows) {
  std::int64_t tokens = 0;
  for (const at::Tensor& window : windows) {
    // The first half of an encoder-decoder's windows goes to the encoder.
    const std::int64_t read = source.spec.has_encoder() ? window.size(1) / 2 : 0;
    tokens += window.size(0) * (window.size(1) - read);
  }
  const std::int64_t each = predictions_at_once(source.spec.vocab_size);
  return layers_of(source) + layers_of(result) +
         static_cast<std::size_t>((tokens + each - 1) / each);
}

void check_same_vocabulary(const Model& source, const Model& result) {
  if (source.spec.vocab_size != result.spec.vocab_size) {
    throw_bad_input("{}: a vocabulary of {} tokens, that of {} has {}", printable_path(result.path),
                    result.spec.vocab_size, printable_path(source.path), source.spec.vocab_size);
  }
}

PredictionComparison compare_predictions(const Model& source, const Model& result,
                                         const Batches& windows, c10::Device device,
                                         const std::function<void(std::size_t)>& progress,
                                         const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  check_same_vocabulary(source, result);
  std::size_t done = 0;
  const auto step_done = [&] { call_if_given(progress, ++done); };
  const LmHeadInputs expected = run(source, windows, device, step_done, stop);
  const LmHeadInputs found = run(result, windows, device, step_done, stop);
  const std::int64_t tokens = expected.hidden.size(0);
  const std::int64_t step = predictions_at_once(expected.head.size(0));
  PredictionComparison comparison;
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    throw_if_stopped(stop, "interrupted");
    const std::int64_t count = std::min(step, tokens - begin);
    add(comparison, logits_of(expected, begin, count).to(at::kDouble),
        logits_of(found, begin, count).to(at::kDouble));
    step_done();
  }
  const auto predictions = static_cast<double>(tokens);
  comparison.kl /= predictions;
  comparison.mean_difference /= predictions;
  comparison.agreement /= predictions;
  return comparison;
}

Batches random_windows(std::int64_t vocab_size, const WindowSettings& settings) {
  const std::int64_t windows = (settings.max_tokens - 1) / settings.context + 1;
  const at::Generator generator = at::detail::createCPUGenerator(1);
  Batches batches;
  for (std::int64_t first = 0; first < windows; first += settings.batch) {
    batches.push_back(at::randint(0, vocab_size,
                                  {std::min(settings.batch, windows - first), settings.context},
                                  generator, at::kLong));
  }
  return batches;
}

// Shapes: B windows of T tokens, N predictions, D hidden size.

TextQualityMeter::TextQualityMeter(const Model& source, const TokenFile& data,
                                   const WindowRange& part, c10::Device device,
                                   const std::atomic<bool>& stop, std::function<void()> progress,
                                   at::ScalarType type)
    : source_(source), device_(device), type_(type), stop_(stop), progress_(std::move(progress)) {
  const at::NoGradGuard no_gradients;
  data.check_vocabulary(source.spec.vocab_size);
  read(data, part);
  source_hidden_ = last_hidden(source, windows_, device_, type_, {}, progress_, stop);
  source_quality_ = predictions_of(source, source_hidden_, /*compares=*/false);
  source_quality_.divergence = source_quality_.loss ? std::optional(0.0) : std::nullopt;
}

void TextQualityMeter::read(const TokenFile& data, const WindowRange& part) {
  const std::optional<Task> task = evaluation_task(source_, part.context);
  const std::int64_t width = task ? window_width(task->objective, part.context) : part.context;
  const std::vector<std::int64_t> numbers = numbers_of_windows(part);
  for (std::int64_t first = 0; first < part.windows; first += part.batch) {
    const at::Tensor ids = token_rows(std::min(part.batch, part.windows - first), width,
                                      [&](std::int64_t row, std::span<std::int64_t> window) {
                                        const std::int64_t number =
                                            numbers[static_cast<std::size_t>(first + row)];
                                        data.read(part.first + number * part.context, window);
                                      });
    if (!task) {
      windows_.push_back(ids);
      continue;
    }
    const TaskBatch batch = make_task_batch(ids, first, *task, source_.spec);
    // A walk over an encoder-decoder splits the windows itself.
    windows_.push_back(source_.spec.has_encoder() ? ids : batch.tokens);
    answers_.push_back(batch);
  }
}

LmHeadInputs TextQualityMeter::predictions(const OutputHead& head, const Batches& hidden,
                                           std::size_t batch) const {
  const at::Tensor all = hidden[batch].flatten(0, 1);  // [B·T, D]
  const at::Tensor& positions = answers_[batch].positions;
  return head.lm_head_inputs(
      (positions.defined() ? all.index_select(0, positions.to(device_)) : all).unsqueeze(0));
}

TextQuality TextQualityMeter::predictions_of(const Model& model, const Batches& hidden,
                                             bool compares) const {
  if (answers_.empty()) {
    return {};
  }
  const OutputHead head(model, device_, type_);
  const std::optional<OutputHead> source_head =
      compares ? std::optional<OutputHead>(std::in_place, source_, device_, type_) : std::nullopt;
  const std::int64_t rows = default_loss_rows(model.spec.vocab_size, device_.is_cpu());
  double loss = 0.0, divergence = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const LmHeadInputs found = predictions(head, hidden, i);
    const LmHeadInputs expected =
        compares ? predictions(*source_head, source_hidden_, i) : LmHeadInputs();
    const at::Tensor targets = answers_[i].targets.to(device_).unsqueeze(1);
    for (std::int64_t begin = 0; begin < targets.size(0); begin += rows) {
      throw_if_stopped(stop_, "interrupted");
      const std::int64_t count = std::min(rows, targets.size(0) - begin);
      const at::Tensor s = at::log_softmax(logits_of(found, begin, count), 1);  // [count, V]
      loss -= s.gather(1, targets.narrow(0, begin, count)).sum(at::kDouble).item<double>();
      if (compares) {
        const at::Tensor t = at::log_softmax(logits_of(expected, begin, count), 1);
        // Rounding makes some of two like models negative.
        divergence += (t.exp() * (t - s)).sum(1).clamp_min(0).sum(at::kDouble).item<double>();
      }
    }
  }
  const auto tokens = static_cast<double>(predicted_tokens());
  if (!std::isfinite(loss)) {
    throw_bad_input("{}: the loss on the held-out text is {}: NaN or infinity in the weights",
                    printable_path(model.path), loss / tokens);
  }
  TextQuality quality;
  quality.loss = loss / tokens;
  if (compares) {
    quality.divergence = divergence / tokens;
  }
  return quality;
}

TextQuality TextQualityMeter::quality_of(const Model& model, const Batches& hidden) const {
  TextQuality quality =
      predictions_of(model, hidden, model.spec.vocab_size == source_.spec.vocab_size);
  double sum = 0.0, tokens = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const at::Tensor cosines = at::cosine_similarity(
        hidden[i].to(at::kFloat), source_hidden_[i].to(at::kFloat), -1);  // [B, T]
    sum += cosines.sum(at::kDouble).item<double>();
    tokens += static_cast<double>(cosines.numel());
  }
  quality.cosine = sum / tokens;
  return quality;
}

TextQuality TextQualityMeter::of(const Model& model) const {
  const at::NoGradGuard no_gradients;
  return quality_of(model, last_hidden(model, windows_, device_, type_, {}, progress_, stop_));
}

TextQuality TextQualityMeter::of(const ConversionPlan& plan) const {
  const at::NoGradGuard no_gradients;
  AttentionPooler pooler(plan, source_.checkpoint, &stop_);
  const auto pooled = [&](const LayerWalk& walk) {
    const auto pool = [&](AttentionLayer& attention, AttentionRole role) {
      const std::size_t layer = walk.layer();
      if (plan.spec.attention(role, layer).present() &&
          plan.spec.kv_heads_of(role)[layer] != plan.grouped.kv_heads_of(role)[layer]) {
        const AttentionHeads& heads = pooler.layer(role, layer);
        attention = with_heads(attention, heads, HeadOrder().heads(role, layer, heads.query_heads));
      }
    };
    Block block = walk.block();
    pool(block.attention, walk.stack());
    if (walk.stack() == AttentionRole::kSelf && plan.spec.has_encoder()) {
      pool(block.cross, AttentionRole::kCross);
    }
    return block;
  };
  return quality_of(source_,
                    last_hidden(source_, windows_, device_, type_, pooled, progress_, stop_));
}

std::int64_t TextQualityMeter::predicted_tokens() const {
  std::int64_t tokens = 0;
  for (const TaskBatch& answers : answers_) {
    tokens += answers.targets.numel();
  }
  return tokens;
}

}  // namespace regroup
