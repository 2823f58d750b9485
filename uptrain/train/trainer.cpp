#include "uptrain/train/trainer.h"

#include <chrono>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"

namespace regroup {

namespace {

// Gradients that are summed, over batches or ranks, need a wide type.
GradientType gradient_type(const MasterWeights& masters, const Optimizer& optimizer,
                           const UptrainSettings& settings, const ZeroPartition* partition) {
  const bool alone = partition == nullptr;
  const bool taken_narrow = masters.mode() == MemoryMode::kCompact || optimizer.writes_copies();
  const bool computed = alone && (masters.mode() == MemoryMode::kHost ||  // the host sums its own
                                  (taken_narrow && settings.accumulation == 1));
  return computed ? GradientType::kComputed : GradientType::kWide;
}

// Adds the gradients of all copies of the weights.
void sum_over_copies(ProcessGroup* copies, const std::vector<at::Tensor>& gradients) {
  if (copies == nullptr) {
    return;
  }
  std::vector<Pending> sums;
  for (const at::Tensor& gradient : gradients) {
    sums.push_back(copies->sum_in_place(gradient));
  }
  for (const Pending& sum : sums) {
    sum.in_order();
  }
}

}  // namespace

Trainer::Trainer(LossFunction loss, const Parameters& model_weights, const MasterWeights& masters,
                 const FrozenQueries& frozen, Optimizer& optimizer, const DataLoader& data,
                 const UptrainSettings& settings, const LrSchedule& schedule,
                 const ZeroPartition* partition, ShardedWeights* shards)
    : loss_(std::move(loss)),
      model_weights_(model_weights.tensors()),
      masters_(masters),
      frozen_(frozen),
      optimizer_(optimizer),
      data_(data),
      settings_(settings),
      schedule_(schedule),
      partition_(partition),
      shards_(shards),
      gradients_(model_weights_, gradient_type(masters, optimizer, settings, partition)) {
  for (const StateTensor& master : masters.tensors()) {
    stepped_weights_.push_back(model_weights.at(master.name));
  }
  model_weights.require_gradients();
  if (masters.mode() == MemoryMode::kHost) {
    transfer_.emplace(stepped_weights_,
                      partition != nullptr ? at::kFloat : stepped_weights_.front().scalar_type());
  }
  round_masters();
  refresh_model_weights();
}

bool Trainer::run(TrainingProgress& progress, const std::atomic<bool>& stop,
                  const std::function<void(const StepReport&)>& after_step) {
  while (progress.step < schedule_.steps) {
    if (partition_ != nullptr ? stop_agreed_ : stop.load()) {
      return false;
    }
    const StepReport report = step(progress, stop);
    call_if_given(after_step, report);
    if (progress.skipped_in_a_row > settings_.max_skipped_in_a_row) {
      throw_bad_input(
          "step {}: loss or gradients were not finite {} times in a row, allowed are {}; "
          "a lower learning rate may help",
          progress.step, progress.skipped_in_a_row, settings_.max_skipped_in_a_row);
    }
  }
  return true;
}

StepReport Trainer::step(TrainingProgress& progress, const std::atomic<bool>& stop) {
  const auto begin = std::chrono::steady_clock::now();
  const Communication before =
      partition_ != nullptr ? partition_->group().communication() : Communication{};
  StepReport report;
  report.learning_rate = schedule_.at(progress.step);
  at::Tensor loss = accumulate(progress.samples);

  // The device queues all of this work. The host of a single rank waits only once, for `figures` or
  // in kHost for the gradients of each batch.
  std::vector<at::Tensor> gradients = complete_gradients(loss);
  frozen_.clear(gradients);
  at::Tensor norm = global_norm(gradients);
  at::Tensor stopping;
  if (partition_ != nullptr) {
    stopping = agree(loss, norm, stop);
  }
  const at::Tensor bad = at::isfinite(norm + loss).logical_not().to(at::kFloat);
  optimizer_.step(gradients, report.learning_rate,
                  clipping_divisor(norm, settings_.max_gradient_norm), bad);
  gradients.clear();
  frozen_.restore();
  if (!optimizer_.writes_copies() || frozen_.any()) {
    round_masters();
  }
  refresh_model_weights();
  std::vector<at::Tensor> read = {loss.to(at::kDouble), norm.to(at::kDouble), bad.to(at::kDouble)};
  if (stopping.defined()) {
    read.push_back(stopping);
  }
  const at::Tensor figures = at::stack(read).to(at::kCPU);
  const auto* values = figures.const_data_ptr<double>();
  stop_agreed_ = stopping.defined() && values[3] != 0.0;

  report.loss = values[0];
  report.gradient_norm = values[1];
  report.skipped = values[2] != 0.0;
  count_step(progress, report);
  if (partition_ != nullptr) {
    const Communication& after = partition_->group().communication();
    report.communication = {after.seconds - before.seconds, after.sent - before.sent,
                            after.received - before.received};
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

void Trainer::count_step(TrainingProgress& progress, StepReport& report) const {
  const std::int64_t samples = settings_.batch * settings_.accumulation;
  progress.step += 1;
  progress.samples += samples;
  progress.skipped += report.skipped ? 1 : 0;
  progress.skipped_in_a_row = report.skipped ? progress.skipped_in_a_row + 1 : 0;
  report.step = progress.step;
  report.tokens = samples * data_.sequence_length();
}

// Returns this rank's part of the mean loss over all predicted tokens of a step. Leaves its
// gradients in gradients_, own_sums_ or transfer_.
at::Tensor Trainer::accumulate(std::int64_t first_sample) {
  const std::int64_t share =
      settings_.accumulation / (partition_ != nullptr ? partition_->group().shares() : 1);
  const std::int64_t begin = share * (partition_ != nullptr ? partition_->group().share() : 0);
  const auto asked = static_cast<double>(
      data_.predictions(first_sample, settings_.batch * settings_.accumulation));
  at::Tensor total;
  for (std::int64_t i = begin; i < begin + share; ++i) {
    const std::int64_t first = first_sample + i * settings_.batch;
    // If all windows are full, the divisor is the number of micro-batches.
    const auto asked_here = static_cast<double>(data_.predictions(first, settings_.batch));
    const at::Tensor loss =
        loss_(data_.batch(first, settings_.batch), first) / (asked / asked_here);
    add_gradients(loss, /*last=*/i + 1 == begin + share);
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  return total;
}

void Trainer::add_gradients(const at::Tensor& loss, bool last) {
  if (partition_ != nullptr && (last || shards_ != nullptr)) {
    send_to_owners(loss);
  } else if (partition_ == nullptr && transfer_) {
    transfer_->begin_batch();
    gradients_.add_last(loss, [&](std::size_t parameter, const at::Tensor& gradient) {
      transfer_->receive(parameter, gradient);
    });
    transfer_->end_batch();
  } else {
    gradients_.add(loss);
  }
}

// The sum over ranks begins while the backward pass runs. It is of all gradients since the last
// step: those of this batch and those of earlier batches.
void Trainer::send_to_owners(const at::Tensor& loss) {
  GradientReducer reducer(*partition_, shards_ != nullptr ? GradientReducer::kFewInFlight
                                                          : GradientReducer::kAnyInFlight);
  gradients_.add_last(loss, [&](std::size_t parameter, at::Tensor sum) {
    reducer.add_ready(parameter, std::move(sum));
  });
  std::vector<at::Tensor> sums = reducer.finish();
  if (own_sums_.empty()) {
    own_sums_ = std::move(sums);
  } else {
    at::_foreach_add_(own_sums_, sums);
  }
}

// The gradients of the weights that are updated here, next to their masters. In kHost the loss goes
// to the host with them.
std::vector<at::Tensor> Trainer::complete_gradients(at::Tensor& loss) {
  if (partition_ == nullptr) {
    return transfer_ ? transfer_->finish(loss) : gradients_.take();
  }
  std::vector<at::Tensor> sums = std::exchange(own_sums_, {});
  sum_over_copies(partition_->group().copies(), sums);
  if (!transfer_) {
    return sums;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    transfer_->receive(i, std::exchange(sums[i], at::Tensor()));
  }
  return transfer_->finish(loss);
}

// Combines loss and norm of all ranks. Returns the number of ranks that were asked to stop.
at::Tensor Trainer::agree(at::Tensor& loss, at::Tensor& norm, const std::atomic<bool>& stop) const {
  const at::Tensor asked = at::full_like(loss, stop ? 1.0 : 0.0, at::kDouble);
  const at::Tensor own = at::stack({loss.to(at::kDouble), norm.to(at::kDouble).square(), asked});
  const at::Tensor sums =
      partition_->group().sum(own.to(partition_->group().device())).to(own.device());
  loss = sums[0];
  ProcessGroup* copies = partition_->group().copies();  // each has the whole norm
  norm = (copies != nullptr ? sums[1] / copies->size() : sums[1]).sqrt();
  return sums[2];
}

// The model's weights from whole masters next to them, where they are not the same tensors.
void Trainer::round_masters() const {
  if (masters_.mode() != MemoryMode::kFull ||
      stepped_weights_.front().is_same(masters_.tensors().front().value)) {
    return;
  }
  std::vector<at::Tensor> wide;
  for (const StateTensor& master : masters_.tensors()) {
    wide.push_back(master.value);
  }
  const at::NoGradGuard no_gradients;
  at::_foreach_copy_(stepped_weights_, wide);
}

void Trainer::refresh_model_weights() {
  if (shards_ != nullptr) {
    shards_->drop_all();
  }
  if (transfer_) {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      transfer_->send(i, masters_.read(i));
    }
  }
  if (partition_ != nullptr && shards_ == nullptr) {
    partition_->broadcast_weights(model_weights_);
  }
}

}  // namespace regroup
