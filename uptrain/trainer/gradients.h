// Gradients of a loss: their sum over micro-batches and their norm.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Receives the sum of the gradients of a parameter and its index.
using SumTaker = std::function<void(std::size_t parameter, at::Tensor sum)>;

/// The type of gradients.
enum class GradientType {
  kWide,      ///< fp32 (fp64 for fp64 parameters), whatever type the model computes in
  kComputed,  ///< the parameters' own: for a single loss, of which nothing is summed
};

/// Accumulates the gradients of several losses.
class GradientSum {
 public:
  /// Sums gradients of `parameters`, leaves that require gradients.
  explicit GradientSum(std::vector<at::Tensor> parameters, GradientType type = GradientType::kWide);

  /// Adds the gradients of a scalar `loss`; its graph is freed. Throws c10::Error if it does not
  /// depend on one of the parameters.
  void add(const at::Tensor& loss);

  /// The same for the last loss of a sum: passes the sum of each parameter to `take` as soon as it
  /// is complete, in any order, during the backward pass, and drops it. `take` is called in
  /// autograd's thread for the loss's device, one call at a time.
  void add_last(const at::Tensor& loss, const SumTaker& take);

  /// The sums, one per parameter, in their order.
  const std::vector<at::Tensor>& sums() const { return sums_; }

  /// Clears the sums.
  void clear() { sums_.clear(); }

  /// Moves the sums out.
  std::vector<at::Tensor> take() { return std::exchange(sums_, {}); }

 private:
  void differentiate(const at::Tensor& loss, const SumTaker& take) const;
  at::Tensor completed(const at::Tensor& gradient) const;

  std::vector<at::Tensor> parameters_;
  GradientType type_;
  std::vector<at::Tensor> sums_;
};

/// The Euclidean norm of all tensors taken as one vector: a scalar tensor on their device, in fp32
/// for narrower ones.
at::Tensor global_norm(const std::vector<at::Tensor>& tensors);

}  // namespace regroup
