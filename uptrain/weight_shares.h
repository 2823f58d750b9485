// Which rank steps which weights, and how gradients get to it and new weights back from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/parameters.h"
#include "uptrain/ranks.h"

namespace regroup {

/// Each trained tensor has one owner among the ranks, which alone keeps its master and the
/// optimizer's state (Rajbhandari et al., ZeRO, stage 1, https://arxiv.org/abs/1910.02054, by whole
/// tensors, as Adafactor needs them). The largest tensors go first, each to the rank with least.
class WeightShares {
 public:
  /// Of `trained`, the same on all ranks, in the type they are computed in. Throws kUsage where
  /// there are more ranks than tensors.
  WeightShares(Ranks& ranks, const Parameters& trained);

  Ranks& ranks() const { return ranks_; }

  /// Names of the tensors that this rank owns, in their order in `trained`.
  std::vector<std::string> own_names() const;

  /// From the gradients of all trained tensors on each rank to the sums over all ranks of those
  /// that this one owns, in the order of own_names(). Small tensors travel together.
  std::vector<at::Tensor> reduce(std::vector<at::Tensor> gradients) const;

  /// Gives the values that owners have in `weights`, all trained tensors, to everyone.
  void spread(const std::vector<at::Tensor>& weights) const;

 private:
  // Tensors of one owner that travel together.
  struct Bucket {
    int owner = 0;
    std::vector<std::size_t> members;
  };

  std::vector<at::Tensor> parts_of(const Bucket& bucket, const at::Tensor& flat) const;

  Ranks& ranks_;
  std::vector<std::string> names_;  // of each tensor
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<int> owners_;
  std::vector<Bucket> buckets_;
};

/// The owner of each of several tensors with so many elements.
std::vector<int> balanced_owners(const std::vector<std::int64_t>& elements, int ranks);

}  // namespace regroup
