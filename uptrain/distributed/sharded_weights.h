// Gradients that ranks sum, and weights and states of which each rank holds a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/block.h"
#include "uptrain/model/parameters.h"

namespace regroup {

// Assigns each weight to the rank that updates it, and groups tensors into communication buckets.

/// Each trained tensor is owned by one of ProcessGroup::sharing(), and only that rank keeps its
/// master weight and optimizer state (Rajbhandari et al., ZeRO stage 1,
/// https://arxiv.org/abs/1910.02054). Tensors are not split, because Adafactor needs whole ones.
/// They are assigned largest first, each to the rank with the fewest elements.
class ZeroPartition {
 public:
  /// Tensors of one owner that are sent together, by index.
  struct Bucket {
    int owner = 0;
    std::vector<std::size_t> members;
  };

  static constexpr std::int64_t kBucketElements = std::int64_t{1} << 23;  // 32 MiB in fp32

  /// Partitions `trained`, which is the same on all ranks: in the compute dtype and in the order of
  /// use. A bucket holds one tensor or at most `bucket_elements`. Throws kUsage if there are more
  /// ranks than tensors.
  ZeroPartition(ProcessGroup& group, const Parameters& trained,
                std::int64_t bucket_elements = kBucketElements);

  /// All ranks.
  ProcessGroup& group() const { return group_; }

  /// Those that the tensors are partitioned over.
  ProcessGroup& sharing() const { return group_.sharing(); }

  /// Names of the tensors that this rank owns, in their order in `trained`.
  std::vector<std::string> own_names() const;

  /// The owner of each trained tensor, by name.
  std::map<std::string, int> owners() const;

  /// Buckets of all tensors, the same on all ranks, in the order in which a backward pass completes
  /// them.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  std::size_t tensors() const { return names_.size(); }

  /// Whether this rank owns the bucket.
  bool owns(const Bucket& bucket) const { return bucket.owner == sharing().rank(); }

  /// One contiguous tensor with the values of the bucket's members in `tensors`. For a bucket with
  /// a single member this may be that tensor itself.
  static at::Tensor flattened(const Bucket& bucket, const std::vector<at::Tensor>& tensors);

  /// The reverse: the bucket's tensors, in the order of its members, as parts of `flat`.
  std::vector<at::Tensor> parts_of(const Bucket& bucket, const at::Tensor& flat) const;

  /// Broadcasts `weights`, all trained tensors, from their owners to all ranks.
  void broadcast_weights(const std::vector<at::Tensor>& weights) const;

 private:
  void fill_buckets(const std::vector<std::int64_t>& elements, std::int64_t bucket_elements);

  ProcessGroup& group_;
  std::vector<std::string> names_;  // of each tensor
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<int> owners_;
  std::vector<Bucket> buckets_;
};

/// The owner of each tensor, given its number of elements. `loads`: elements that each rank owns
/// already; empty: none.
std::vector<int> balanced_owners(const std::vector<std::int64_t>& elements, int ranks,
                                 std::vector<std::int64_t> loads = {});

// Sums gradients over all ranks while the backward pass is still running.

/// Reduces the gradients of one step to the owners of the tensors. The reduction of a bucket starts
/// as soon as this rank has all its gradients (Li et al. 2020, https://arxiv.org/abs/2006.15704)
/// and all earlier buckets have started, so all ranks start buckets in the same order. Gradients
/// that other ranks own are freed once they have arrived there.
class GradientReducer {
 public:
  static constexpr std::size_t kFewInFlight = 2;
  static constexpr std::size_t kAnyInFlight = std::numeric_limits<std::size_t>::max();

  /// At most `most_in_flight` buckets are on their way at a time: where the network is slower than
  /// the backward pass, the pass waits, since gradients of a model that is larger than the device
  /// must not pile up on it.
  explicit GradientReducer(const ZeroPartition& partition,
                           std::size_t most_in_flight = kAnyInFlight);

  /// Adds this rank's gradient of one trained tensor; each once, in any order. Call it on the
  /// thread and with the stream on which the gradient was computed: NCCL waits for the stream that
  /// is current when the reduction of a bucket starts.
  void add_ready(std::size_t tensor, at::Tensor gradient);

  /// Number of buckets whose reduction has started.
  std::size_t begun() const { return begun_; }

  /// Waits for the sums over all ranks of the tensors that this rank owns, in the order of
  /// own_names(). All gradients must have been added.
  std::vector<at::Tensor> finish();

 private:
  struct Transfer {
    const ZeroPartition::Bucket& bucket;
    at::Tensor flat;
    Pending reduce;
  };

  void begin(const ZeroPartition::Bucket& bucket);
  void end(const Transfer& transfer);

  const ZeroPartition& partition_;
  std::size_t most_in_flight_;
  std::vector<std::size_t> bucket_of_;  // by tensor
  std::vector<std::size_t> missing_;    // by bucket: gradients not added yet
  std::vector<at::Tensor> gradients_;   // added, not sent yet; then the sums
  std::list<Transfer> transfers_;       // in flight
  std::size_t begun_ = 0;
};

// Weights that each rank holds a part of (ZeRO stage 3; Rajbhandari et al.,
// https://arxiv.org/abs/1910.02054).
//
// A tensor lives on the rank that owns it, whole. PyTorch's FSDP2 cuts each tensor along its first
// dimension instead. Whole tensors leave optimizers, saved states and results as they are with one
// rank (Adafactor's factors need whole ones), and the same bytes travel: a broadcast from the owner
// for an all-gather, a sum to the owner for a reduce-scatter. What it costs is balance: a rank may
// hold one tensor more than another.

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

/// Tensors with the shapes of `spec` and no memory.
Parameters parameters_without_memory(const ModelSpec& spec, at::ScalarType type, at::Device device);

/// Reads the values of this rank's part of `weights`, made by parameters_without_memory().
/// `owners`: of some of them, the others are chosen so that ranks own equally many elements as far
/// as possible. Throws kBadInput as load_parameters() does.
std::unique_ptr<ShardedWeights> load_share(ProcessGroup& group, const Parameters& weights,
                                           const ModelSpec& spec, const Checkpoint& checkpoint,
                                           const std::map<std::string, int>& owners);

// Named tensors that are sharded over ranks: each rank's own, or gathered on the first rank and
// scattered again.

/// A state that is saved and loaded this way does not depend on the number of ranks. All ranks call
/// the same functions.
class ShardedState {
 public:
  /// `own`: this rank's tensors, read and written in place from now on. Tensors of the same name
  /// are equal on all ranks that have them. `group` is null for a single process.
  ShardedState(ProcessGroup* group, std::vector<StateTensor> own);

  /// The tensors that this rank saves if each saves a part: together those of all ranks, each once.
  std::vector<StateTensor> part() const;

  /// The tensors that this rank needs.
  const std::vector<StateTensor>& own() const { return own_; }

  /// Returns the tensors of all ranks on the first rank: its own, and whole copies of the others in
  /// host memory. Returns nothing on other ranks.
  std::vector<StateTensor> gather() const;

  /// Whether each tensor of gather() is a copy, which nobody else holds; in the same order.
  std::vector<bool> gathered_copies() const;

  /// The tensors of gather() with uninitialised copies, to be filled and passed to scatter().
  std::vector<StateTensor> places() const;

  /// Sends the tensors in the first rank's `all` to the ranks that own them. On other ranks `all`
  /// is not used.
  void scatter(const std::vector<StateTensor>& all) const;

 private:
  struct Shared {
    std::string name;
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
    int owner = 0;         // the first rank that has it
    bool several = false;  // other ranks have it, too
    StateTensor own;       // undefined on ranks that do not
  };
  at::Tensor sendable(const StateTensor& tensor) const;
  at::Tensor scratch(const Shared& shared) const;

  ProcessGroup* group_;
  std::vector<StateTensor> own_;
  std::vector<Shared> shared_;
};

}  // namespace regroup
