// Shapes: N predictions of a model, n of them at a time, D hidden size, V vocabulary.
#include "uptrain/layerwise/compare_predictions.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "uptrain/model/measurements.h"
#include "uptrain/model/output_head.h"

namespace regroup {
namespace {

// In fp64, several times: 128 MiB each.
constexpr std::int64_t kLogitsAtOnce = 16 << 20;

std::size_t layers_of(const Model& model) {
  return model.spec.layers.size() + model.spec.encoder_layers.size();
}

// Computes the inputs of all predictions of a model: [N, D] and [V, D].
LmHeadInputs run(const Model& model, const Batches& windows, c10::Device device,
                 const std::function<void()>& layer_done, const std::atomic<bool>& stop) {
  LayerWalk walk(model, windows, device);
  while (walk.next()) {
    walk.run({}, stop);
    layer_done();
  }
  const OutputHead head(model, device);
  LmHeadInputs inputs;
  Batches parts;
  for (const at::Tensor& hidden : walk.hidden()) {
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

at::Tensor wide_logits(const LmHeadInputs& inputs, std::int64_t begin, std::int64_t count) {
  return logits_of(inputs, begin, count).to(at::kDouble);
}

PredictionComparison compare(const LmHeadInputs& source, const LmHeadInputs& result,
                             const std::atomic<bool>& stop) {
  const std::int64_t tokens = source.hidden.size(0);
  const std::int64_t step = std::max<std::int64_t>(1, kLogitsAtOnce / source.head.size(0));
  PredictionComparison comparison;
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    throw_if_stopped(stop, "interrupted");
    const std::int64_t count = std::min(step, tokens - begin);
    add(comparison, wide_logits(source, begin, count), wide_logits(result, begin, count));
  }
  const auto count = static_cast<double>(tokens);
  comparison.kl /= count;
  comparison.mean_difference /= count;
  comparison.agreement /= count;
  return comparison;
}

}  // namespace

std::size_t layers_to_compare(const Model& source, const Model& result) {
  return layers_of(source) + layers_of(result);
}

void check_same_vocabulary(const Model& source, const Model& result) {
  if (source.spec.vocab_size != result.spec.vocab_size) {
    throw_bad_input("{}: a vocabulary of {} tokens, that of {} has {}",
                    printable(result.path.string(), 0), result.spec.vocab_size,
                    printable(source.path.string(), 0), source.spec.vocab_size);
  }
}

PredictionComparison compare_predictions(const Model& source, const Model& result,
                                         const Batches& windows, c10::Device device,
                                         const std::function<void(std::size_t)>& progress,
                                         const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  check_same_vocabulary(source, result);
  std::size_t done = 0;
  const auto layer_done = [&] { call_if_given(progress, ++done); };
  const LmHeadInputs expected = run(source, windows, device, layer_done, stop);
  return compare(expected, run(result, windows, device, layer_done, stop), stop);
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

}  // namespace regroup
