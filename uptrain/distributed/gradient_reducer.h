// Gradients of all ranks added up while they are still being computed.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/zero_partition.h"

namespace regroup {

/// One step's gradients on their way from all ranks to the owners of the tensors. A bucket sets out
/// as soon as this rank has all of it (Li et al. 2020, https://arxiv.org/abs/2006.15704), but not
/// before those ahead of it: all ranks begin in one order, whatever order their gradients come in.
/// What others own is forgotten as soon as it has arrived there.
class GradientReducer {
 public:
  explicit GradientReducer(const ZeroPartition& partition);

  /// Takes this rank's gradient of one of the trained tensors, each of them once, in any order. To
  /// be called where, and with the stream current in which, the gradient was computed: NCCL waits
  /// for the stream that is current when a bucket sets out.
  void add_ready(std::size_t tensor, at::Tensor gradient);

  /// Buckets that have set out.
  std::size_t begun() const { return begun_; }

  /// Waits for the sums over all ranks of what this one owns, in the order of own_names(). All
  /// gradients must have been given.
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
  std::vector<std::size_t> bucket_of_;  // by tensor
  std::vector<std::size_t> missing_;    // by bucket: tensors not given yet
  std::vector<at::Tensor> gradients_;   // given, not on their way yet; then the sums
  std::list<Transfer> transfers_;       // on their way
  std::size_t begun_ = 0;
};

}  // namespace regroup
