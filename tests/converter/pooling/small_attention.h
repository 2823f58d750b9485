// Random attention heads and a reference attention to check pooled heads. Independent of the
// project's transformer.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "converter/pooling/pool_attention.h"

namespace regroup {

/// Reproducible random doubles of a given shape.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed);
  at::Tensor operator()(std::vector<std::int64_t> shape);

 private:
  at::Generator generator_;
};

struct SmallSizes {
  std::int64_t query_heads = 6;
  std::int64_t kv_heads = 6;
  std::int64_t head_dim = 4;
  std::int64_t width = 30;
  bool biases = false;
};

AttentionHeads random_heads(const SmallSizes& sizes, RandomNumbers& random);

/// Writable views: weight [heads, d, D] and bias [heads, d] of q, k or v; o's weight as [E, H, d].
at::Tensor weight_of(DenseLinear& linear, std::int64_t head_dim);
at::Tensor bias_of(DenseLinear& linear, std::int64_t head_dim);
at::Tensor output_of(AttentionHeads& heads);

/// Covariance and mean of correlated inputs whose mean is not 0.
InputMoments random_moments(std::int64_t width, RandomNumbers& random);

/// Causal attention over inputs [T, D], after RMSNorm of queries and keys if they have one, and
/// RoPE in the planes of `basis`: [T, E].
at::Tensor attend(const AttentionHeads& heads, const HeadBasis& basis, const at::Tensor& inputs);

/// The largest difference of two tensors.
double distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace regroup
