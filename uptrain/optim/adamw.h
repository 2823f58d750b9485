// AdamW on master weights; clipping and the check for finite gradients are fused into its single
// pass.
#pragma once

#include <string>
#include <vector>

#include "uptrain/optim/optimizer.h"

namespace regroup {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< of tensors with two or more dimensions; norms and biases: none
  /// The type of the moments m and v. bf16 halves their memory. Each update is computed in the
  /// parameters' type.
  Precision moments = Precision::kFp32;
};

/// Loshchilov & Hutter, Decoupled weight decay, https://arxiv.org/abs/1711.05101: with t counting
/// the updates made,
///   m = β₁m + (1-β₁)g    v = β₂v + (1-β₂)g²
///   w = w - lr·λ·w - lr · (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + ε)
class AdamW : public Optimizer {
 public:
  /// Updates `masters` (fp32 or fp64) from now on; moments start at zero, next to the masters.
  AdamW(MasterWeights masters, const AdamWSettings& settings);

  void step(const std::vector<at::Tensor>& gradients, double learning_rate,
            const at::Tensor& gradient_divisor, const at::Tensor& skip) override;

  std::vector<Parameters::Entry> state() const override;

  bool writes_copies() const override { return fused_; }

  /// First moments, one per parameter.
  const std::vector<at::Tensor>& first_moments() const { return first_moments_; }
  /// Updates made, an fp32 scalar.
  const at::Tensor& count() const { return count_; }

 private:
  // Parameters that one call updates together.
  struct Batch {
    std::vector<std::size_t> members;
    double weight_decay = 0.0;
  };
  void add_batches(const std::vector<std::size_t>& members, double weight_decay);

  // Tensors of one call of the fused update; copies where another type is stored.
  struct Tensors {
    std::vector<at::Tensor> weights, gradients, first, second;
  };
  Tensors pick(const std::vector<std::size_t>& members,
               const std::vector<at::Tensor>& gradients) const;

  void step_fused(const std::vector<at::Tensor>& gradients, double learning_rate,
                  const at::Tensor& gradient_divisor, const at::Tensor& skip);

  MasterWeights masters_;
  AdamWSettings settings_;
  bool fused_;  // by the device's own kernel, one pass over each tensor
  std::vector<Batch> batches_;
  std::vector<at::Tensor> first_moments_;
  std::vector<at::Tensor> second_moments_;
  at::Tensor count_;
};

}  // namespace regroup
