// Assigns each weight to the rank that updates it, and groups tensors into communication buckets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/process_group.h"
#include "uptrain/model/parameters.h"

namespace regroup {

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

}  // namespace regroup
