// The training loop, and nothing but the loop: what it works with is given to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "uptrain/data/data_loader.h"
#include "uptrain/distributed/zero_partition.h"
#include "uptrain/model/parameters.h"
#include "uptrain/optim/lr_schedule.h"
#include "uptrain/optim/optimizer.h"
#include "uptrain/trainer/gradients.h"
#include "uptrain/trainer/trained_weights.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

class GradientReducer;

/// What one step did.
struct StepReport {
  std::int64_t step = 0;       ///< steps done so far, this one included
  double loss = 0.0;           ///< mean over the step's tokens, nats
  double gradient_norm = 0.0;  ///< before clipping
  double learning_rate = 0.0;
  std::int64_t tokens = 0;  ///< the step's
  double seconds = 0.0;     ///< the step's
  bool skipped = false;     ///< no update: loss or gradients were not finite
  std::int64_t skipped_so_far = 0;
};

struct LoopSettings {
  std::int64_t steps = 0;
  std::int64_t batch = 1;
  std::int64_t accumulation = 1;  ///< batches in a step, of all ranks together
  double max_gradient_norm = 1.0;
  std::int64_t max_skipped_in_a_row = 10;
  LrSchedule schedule;
};

/// The loss of a micro-batch, a scalar with gradients; see TrainingLoss.
using LossFunction = std::function<at::Tensor(const at::Tensor& ids, std::int64_t first_sample)>;

/// Trains a model's weights on `data`. The optimizer works on `masters`; where the model computes
/// in a narrower type than theirs it has weights of its own, which are given the masters' values at
/// the start and after each step.
///
/// With `shares` this is one rank of several: each computes an equal part of a step's batches and
/// steps its own share of the weights, which is what `masters`, `frozen` and `optimizer` hold.
class Trainer {
 public:
  /// `model_weights`: those to train, in the model's type; `masters`: the same ones (of several
  /// ranks: the rank's own), in theirs.
  Trainer(LossFunction loss, const Parameters& model_weights, const Parameters& masters,
          const FrozenQueries& frozen, Optimizer& optimizer, const DataLoader& data,
          const LoopSettings& settings, const ZeroPartition* partition = nullptr);

  /// Runs from `progress` to the last step and calls `after_step` after each, with `progress`
  /// advanced. Returns false as soon as `stop` is found to be true between two steps, of several
  /// ranks after the step in which it turned true on any of them. Throws kBadInput when too many
  /// steps in a row had to be skipped.
  bool run(TrainingProgress& progress, const std::atomic<bool>& stop,
           const std::function<void(const StepReport&)>& after_step);

 private:
  StepReport step(TrainingProgress& progress, const std::atomic<bool>& stop);
  at::Tensor accumulate(std::int64_t first_sample, GradientReducer* reducer);
  void agree(at::Tensor& loss, at::Tensor& norm, const std::atomic<bool>& stop);
  void refresh_model_weights() const;

  LossFunction loss_;
  std::vector<at::Tensor> model_weights_;
  std::vector<at::Tensor> stepped_weights_;  // those of them that have a master here
  std::vector<at::Tensor> masters_;
  bool shared_;  // the model computes with the masters themselves
  const FrozenQueries& frozen_;
  Optimizer& optimizer_;
  const DataLoader& data_;
  LoopSettings settings_;
  const ZeroPartition* partition_;
  GradientSum gradients_;
  bool stop_agreed_ = false;  // one of several ranks was asked to stop
};

/// Copies `from` into `to`, tensor by tensor, with a change of type where the two differ.
void copy_weights(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to);

}  // namespace regroup
