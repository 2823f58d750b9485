#include "uptrain/trainer.h"

#include <chrono>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include "formats/error.h"

namespace regroup {

void copy_weights(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  const at::NoGradGuard no_gradients;
  at::_foreach_copy_(to, from);
}

Trainer::Trainer(LossFunction loss, const Parameters& model_weights, const Parameters& masters,
                 const FrozenQueries& frozen, Optimizer& optimizer, const TokenBatches& data,
                 const LoopSettings& settings)
    : loss_(std::move(loss)),
      model_weights_(model_weights.tensors()),
      masters_(masters.tensors()),
      shared_(model_weights_.front().is_same(masters_.front())),
      frozen_(frozen),
      optimizer_(optimizer),
      data_(data),
      settings_(settings),
      gradients_(model_weights_) {
  model_weights.require_gradients();
  refresh_model_weights();
}

bool Trainer::run(TrainingProgress& progress, const std::atomic<bool>& stop,
                  const std::function<void(const StepReport&)>& after_step) {
  while (progress.step < settings_.steps) {
    if (stop) {
      return false;
    }
    after_step(step(progress));
    if (progress.skipped_in_a_row > settings_.max_skipped_in_a_row) {
      throw_bad_input(
          "step {}: loss or gradients were not finite {} times in a row, allowed are {}; "
          "a lower learning rate may help",
          progress.step, progress.skipped_in_a_row, settings_.max_skipped_in_a_row);
    }
  }
  return true;
}

StepReport Trainer::step(TrainingProgress& progress) {
  const auto begin = std::chrono::steady_clock::now();
  StepReport report;
  report.learning_rate = settings_.schedule.at(progress.step);
  const at::Tensor loss = accumulate(progress.samples);

  // All of this is queued on the device; the host waits once, for the figures below.
  frozen_.clear(gradients_.sums());
  const at::Tensor norm = global_norm(gradients_.sums());
  const at::Tensor bad = at::isfinite(norm + loss).logical_not().to(at::kFloat);
  optimizer_.step(gradients_.sums(), report.learning_rate,
                  clipping_divisor(norm, settings_.max_gradient_norm), bad);
  gradients_.clear();
  frozen_.restore();
  refresh_model_weights();
  const at::Tensor figures =
      at::stack({loss.to(at::kDouble), norm.to(at::kDouble), bad.to(at::kDouble)}).to(at::kCPU);
  const auto* values = figures.const_data_ptr<double>();

  report.loss = values[0];
  report.gradient_norm = values[1];
  report.skipped = values[2] != 0.0;
  progress.step += 1;
  progress.samples += settings_.batch * settings_.accumulation;
  progress.skipped += report.skipped ? 1 : 0;
  progress.skipped_in_a_row = report.skipped ? progress.skipped_in_a_row + 1 : 0;
  report.step = progress.step;
  report.skipped_so_far = progress.skipped;
  report.tokens = settings_.batch * settings_.accumulation * data_.sequence_length();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

// The mean loss over all micro-batches of a step; its gradients are in gradients_ afterwards.
at::Tensor Trainer::accumulate(std::int64_t first_sample) {
  at::Tensor total;
  for (std::int64_t i = 0; i < settings_.accumulation; ++i) {
    const std::int64_t first = first_sample + i * settings_.batch;
    const at::Tensor loss = loss_(data_.batch(first, settings_.batch), first) /
                            static_cast<double>(settings_.accumulation);
    gradients_.add(loss);
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

void Trainer::refresh_model_weights() const {
  if (!shared_) {
    copy_weights(masters_, model_weights_);
  }
}

}  // namespace regroup
