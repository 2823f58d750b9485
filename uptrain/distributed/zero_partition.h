// Which rank steps which weights, and how gradients get to it and new weights back from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/process_group.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// Each trained tensor has one owner among the ranks, which alone keeps its master and the
/// optimizer's state (Rajbhandari et al., ZeRO, stage 1, https://arxiv.org/abs/1910.02054, by whole
/// tensors, as Adafactor needs them). The largest tensors go first, each to the rank with least.
class ZeroPartition {
 public:
  /// Tensors of one owner that travel together, by their numbers.
  struct Bucket {
    int owner = 0;
    std::vector<std::size_t> members;
  };

  static constexpr std::int64_t kBucketElements = std::int64_t{1} << 23;  // 32 MiB in fp32

  /// Of `trained`, the same on all ranks, in the type they are computed in and the order in which
  /// they are used. A bucket holds one tensor or no more than `bucket_elements`. Throws kUsage
  /// where there are more ranks than tensors.
  ZeroPartition(ProcessGroup& group, const Parameters& trained,
                std::int64_t bucket_elements = kBucketElements);

  ProcessGroup& group() const { return group_; }

  /// Names of the tensors that this rank owns, in their order in `trained`.
  std::vector<std::string> own_names() const;

  /// All tensors, the same on all ranks, in the order in which a backward pass, which comes to the
  /// last used first, is through with all of a bucket.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  std::size_t tensors() const { return names_.size(); }

  /// Whether this rank owns the bucket.
  bool owns(const Bucket& bucket) const { return bucket.owner == group_.rank(); }

  /// One contiguous tensor with the values of a bucket's, which are those of `tensors`; where a
  /// bucket has one alone perhaps that one itself.
  static at::Tensor flattened(const Bucket& bucket, const std::vector<at::Tensor>& tensors);

  /// The reverse: the bucket's tensors, in the order of its members, as parts of `flat`.
  std::vector<at::Tensor> parts_of(const Bucket& bucket, const at::Tensor& flat) const;

  /// Gives the values that owners have in `weights`, all trained tensors, to everyone.
  void broadcast_weights(const std::vector<at::Tensor>& weights) const;

 private:
  void fill_buckets(const std::vector<std::int64_t>& elements, std::int64_t bucket_elements);

  ProcessGroup& group_;
  std::vector<std::string> names_;  // of each tensor
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<int> owners_;
  std::vector<Bucket> buckets_;
};

/// The owner of each of several tensors with so many elements.
std::vector<int> balanced_owners(const std::vector<std::int64_t>& elements, int ranks);

}  // namespace regroup
