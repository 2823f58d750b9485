// Adafactor on master weights: second moments of a matrix kept as one row and one column.
#pragma once

#include <vector>

#include "uptrain/optim/optimizer.h"

namespace regroup {

struct AdafactorSettings {
  double weight_decay = 0.0;       ///< of tensors with two or more dimensions
  bool scale_by_parameter = true;  ///< multiply by the root mean square of the parameter
};

/// Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235, algorithms 4 and 5 with a given learning
/// rate and no first moment, as T5 was trained. With t counting the updates made, β = 1 - t^-0.8
/// and means taken over the last two dimensions of a tensor [..., m, n]:
///   R = βR + (1-β) mean_n(g² + 1e-30)    C = βC + (1-β) mean_m(g² + 1e-30)
///   u = g / √(R Cᵀ / mean(R))            (a vector keeps its second moment V whole: u = g / √V)
///   u = u / max(1, RMS(u))               α = lr · max(1e-3, RMS(w)), or lr alone
///   w = w - αλw - αu
class Adafactor : public Optimizer {
 public:
  /// Updates `masters` (fp32 or fp64) from now on; moments start at zero, next to the masters.
  Adafactor(MasterWeights masters, const AdafactorSettings& settings);

  void step(const std::vector<at::Tensor>& gradients, double learning_rate,
            const at::Tensor& gradient_divisor, const at::Tensor& skip) override;

  std::vector<Parameters::Entry> state() const override;

  /// Updates made, an fp64 scalar.
  const at::Tensor& count() const { return count_; }

 private:
  struct Moments {
    at::Tensor rows, columns;  // [..., m] and [..., n] of a tensor [..., m, n]
    at::Tensor whole;          // of a vector or scalar
  };
  at::Tensor update_of(const Moments& moments, const at::Tensor& gradient, const at::Tensor& beta,
                       const at::Tensor& skip) const;

  MasterWeights masters_;
  AdafactorSettings settings_;
  std::vector<Moments> moments_;
  at::Tensor count_;
};

}  // namespace regroup
