// Sums gradients over all ranks while the backward pass is still running.
#pragma once

#include <cstddef>
#include <limits>
#include <list>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/zero_partition.h"

namespace regroup {

/// Reduces the gradients of one step to the owners of the tensors. The reduction of a bucket starts
/// as soon as this rank has all its gradients (Li et al. 2020, https://arxiv.org/abs/2006.15704)
/// and all earlier buckets have started, so all ranks start buckets in the same order. Gradients
/// that other ranks own are freed once they have arrived there.
class GradientReducer {
 public:
  static constexpr std::size_t kFewInFlight = 2;

  /// At most `most_in_flight` buckets are on their way at a time: where the network is slower than
  /// the backward pass, the pass waits, since gradients of a model that is larger than the device
  /// must not pile up on it.
  explicit GradientReducer(const ZeroPartition& partition,
                           std::size_t most_in_flight = std::numeric_limits<std::size_t>::max());

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

}  // namespace regroup
