// The training loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "uptrain/distributed/process_group.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/lr_schedule.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/trained_weights.h"
#include "uptrain/train/training_state.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

/// The result of one step.
struct StepReport {
  std::int64_t step = 0;       ///< steps done so far, this one included
  double loss = 0.0;           ///< mean over the step's tokens, nats
  double gradient_norm = 0.0;  ///< before clipping
  double learning_rate = 0.0;
  std::int64_t tokens = 0;                     ///< the step's
  double seconds = 0.0;                        ///< the step's
  bool skipped = false;                        ///< no update: loss or gradients were not finite
  std::optional<Communication> communication;  ///< of this rank in this step, if there are others
};

/// The loss of a micro-batch, a scalar with gradients; see TrainingLoss.
using LossFunction = std::function<at::Tensor(const at::Tensor& ids, std::int64_t first_sample)>;

/// Trains a model's weights on `data`. The optimizer updates `masters`. Weights that are copies of
/// them are set to the masters' values at the start and after each step. With MemoryMode::kHost,
/// gradients leave the device as soon as the backward pass has completed them.
///
/// With `partition` this is one of several ranks: each computes an equal part of a step's batches,
/// or with others the same batches, each a part of their sequences (their losses add up). It
/// updates its own share of the weights, which `masters`, `frozen` and `optimizer` hold. With
/// `shards`, ranks hold no other weights between passes, and the gradients of each batch go to
/// their owners at once, so that sums over batches are theirs alone.
class Trainer {
 public:
  /// `model_weights`: the weights to train, in the model's dtype; `masters`: of the same weights,
  /// with several ranks of the rank's own. Of `settings` it uses batch, accumulation, clipping and
  /// the skipped steps that are allowed. They must outlive it, like optimizer and data.
  Trainer(LossFunction loss, const Parameters& model_weights, const MasterWeights& masters,
          const FrozenQueries& frozen, Optimizer& optimizer, const DataLoader& data,
          const UptrainSettings& settings, const LrSchedule& schedule,
          const ZeroPartition* partition = nullptr, ShardedWeights* shards = nullptr);

  /// Runs from `progress` to the last step of the schedule and calls `after_step`, unless it is
  /// empty, after each, with `progress` advanced. Returns false once `stop` is true between two
  /// steps; with several ranks after the step in which it turned true on any of them. Throws
  /// kBadInput if too many steps in a row were skipped.
  bool run(TrainingProgress& progress, const std::atomic<bool>& stop,
           const std::function<void(const StepReport&)>& after_step);

 private:
  StepReport step(TrainingProgress& progress, const std::atomic<bool>& stop);
  void count_step(TrainingProgress& progress, StepReport& report) const;
  at::Tensor accumulate(std::int64_t first_sample);
  void add_gradients(const at::Tensor& loss, bool last);
  void send_to_owners(const at::Tensor& loss);
  std::vector<at::Tensor> complete_gradients(at::Tensor& loss);
  at::Tensor agree(at::Tensor& loss, at::Tensor& norm, const std::atomic<bool>& stop) const;
  void round_masters() const;
  void refresh_model_weights();

  LossFunction loss_;
  std::vector<at::Tensor> model_weights_;
  std::vector<at::Tensor> stepped_weights_;  // those of them that have a master here
  MasterWeights masters_;
  const FrozenQueries& frozen_;
  Optimizer& optimizer_;
  const DataLoader& data_;
  const UptrainSettings& settings_;
  LrSchedule schedule_;
  const ZeroPartition* partition_;
  ShardedWeights* shards_;
  std::vector<at::Tensor> own_sums_;  // of all ranks' gradients of own weights
  GradientSum gradients_;
  std::optional<HostTransfer> transfer_;  // in MemoryMode::kHost
  bool stop_agreed_ = false;              // one of several ranks received a request to stop
};

}  // namespace regroup
