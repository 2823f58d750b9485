// A model in training: its weights, master weights and optimizer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "uptrain/distributed/process_group.h"
#include "uptrain/distributed/ranks_of_sequence.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/distributed/zero_partition.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"
#include "uptrain/optim/master_weights.h"
#include "uptrain/optim/optimizer.h"
#include "uptrain/run/uptrain_settings.h"
#include "uptrain/trainer/trained_weights.h"
#include "uptrain/trainer/trainer.h"

namespace regroup {

class TrainedModel {
 public:
  /// The weights of `source`, in the precision and on the device of `settings`; masters and
  /// optimizer in its memory mode, which is set, or else kFull. With `group` (null: a single
  /// process), they are this rank's share; so are the weights, if `settings` shard them.
  TrainedModel(const Model& source, const UptrainSettings& settings, ProcessGroup* group = nullptr);

  /// The same, but trains the tensors of these names instead of those that `settings` name.
  TrainedModel(const Model& source, const UptrainSettings& settings,
               std::span<const std::string> trained, ProcessGroup* group = nullptr);
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  Transformer& model() { return model_; }

  /// Trained weights in fp32; the model's own weights if it computes in fp32 on their device.
  const MasterWeights& masters() const { return masters_; }

  /// Masters and optimizer state, under the names they are saved by.
  std::vector<StateTensor> state() const;

  /// A training loop, which keeps references to this and to `data`.
  Trainer trainer(LossFunction loss, const DataLoader& data, const LoopSettings& settings);

 private:
  MasterWeights own_masters(const Model& source, const UptrainSettings& settings,
                            std::span<const std::string> trained) const;

  Parameters weights_;  // what the model computes with
  Parameters trained_;  // those of them that are trained
  std::optional<ZeroPartition> partition_;
  std::unique_ptr<ShardedWeights> shards_;    // null: every rank has all weights
  std::optional<RanksOfSequence> sequences_;  // none: this rank computes whole ones
  MasterWeights masters_;
  Transformer model_;
  FrozenQueries frozen_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace regroup
