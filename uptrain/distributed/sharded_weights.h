// Weights that each rank holds a part of (ZeRO stage 3; Rajbhandari et al.,
// https://arxiv.org/abs/1910.02054).
//
// A tensor lives on the rank that owns it, whole. PyTorch's FSDP2 cuts each tensor along its first
// dimension instead. Whole tensors leave optimizers, saved states and results as they are with one
// rank (Adafactor's factors need whole ones), and the same bytes travel: a broadcast from the owner
// for an all-gather, a sum to the owner for a reduce-scatter. What it costs is balance: a rank may
// hold one tensor more than another.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/block_weights.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// The rank that owns each tensor of a model: given for some, chosen for the others so that ranks
/// own equally many elements as far as possible.
std::map<std::string, int> weight_owners(const Parameters& weights,
                                         std::map<std::string, int> given, int ranks);

class ShardedWeights final : public BlockWeights {
 public:
  /// Takes over the memory of `weights`: from now on, tensors of other ranks have none while they
  /// are not needed. All ranks compute the same passes in the same order.
  ShardedWeights(ProcessGroup& group, const ModelSpec& spec, const Parameters& weights,
                 const std::map<std::string, int>& owners);
  ShardedWeights(const ShardedWeights&) = delete;
  ShardedWeights& operator=(const ShardedWeights&) = delete;

  void begin_pass() override;
  void bring(std::size_t block, Direction direction) override;
  void drop(std::size_t block, Direction direction, bool again) override;

  /// Drops everything that other ranks own. Call it before the weights change: what is brought
  /// later has the new values.
  void drop_all();

 private:
  struct Part {
    at::Tensor tensor;
    int owner = 0;
  };
  // The weights of a block, or of all that is outside blocks.
  struct Unit {
    std::vector<Part> parts;
    std::vector<Pending> arriving;
    bool there = false;  // or on its way
  };

  void start(Unit& unit);
  void finish(Unit& unit);
  void release(Unit& unit);

  ProcessGroup& group_;
  std::vector<Unit> blocks_;
  Unit rest_;
};

/// Gives up the memory of a tensor, which keeps its shape, and takes new memory for it.
void release_memory(const at::Tensor& tensor);
void take_memory(const at::Tensor& tensor);

/// Tensors with the shapes of `spec` and no memory.
Parameters parameters_without_memory(const ModelSpec& spec, at::ScalarType type, at::Device device);

/// Reads the values of this rank's part of `weights`, made by parameters_without_memory().
/// `owners`: of some of them, see weight_owners(). Throws kBadInput as load_parameters() does.
std::unique_ptr<ShardedWeights> load_share(ProcessGroup& group, const Parameters& weights,
                                           const ModelSpec& spec, const Checkpoint& checkpoint,
                                           const std::map<std::string, int>& owners);

}  // namespace regroup
