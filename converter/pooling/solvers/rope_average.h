// Averages of RoPE's relative rotation between keys and queries over the distances at which a head
// attends.
//
// Shapes: n heads of d features, T distances. The query sees a key t positions before it as S_t k.
// S_t = R_{-t} rotates every plane back by t times its frequency and leaves free features
// unchanged.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

/// Expectations over t of matrices and vectors transformed by S_t. In the basis of eigenvectors of
/// S_t, with eigenvalues e^{iωt}, an average multiplies the elements by φ(ω_a − ω_b), where φ(ω) =
/// E e^{iωt} is the characteristic function of the distances: 1 if features do not rotate relative
/// to each other, near 0 if they do so many times.
class RopeAverage {
 public:
  /// distances: [n, T], the fraction of each head's attention at each distance; rows sum to 1.
  /// Computes on their device.
  RopeAverage(const HeadBasis& basis, const at::Tensor& distances);

  /// The averages of a subset of heads, int64 [m].
  RopeAverage of(const at::Tensor& heads) const;

  /// E[S Y Sᵀ] and E[Sᵀ Y S] for Y [n, d, d].
  at::Tensor seen(const at::Tensor& matrices) const;
  at::Tensor unseen(const at::Tensor& matrices) const;

  /// E[S]: [n, d, d].
  const at::Tensor& mean() const { return mean_; }

 private:
  /// A unitary matrix with two numbers in a row: row m is first[m]·e_a + second[m]·e_b.
  struct Pairs {
    at::Tensor a, b, first, second;
    at::Tensor times_rows(const at::Tensor& matrices) const;
    at::Tensor conjugate(const at::Tensor& matrices) const;  // U Y Uᴴ
  };
  RopeAverage() = default;
  void find_eigenvectors(const HeadBasis& basis, c10::Device device);

  Pairs into_, out_;    ///< into the basis of eigenvectors, and out of it
  at::Tensor factors_;  ///< φ(ω_a − ω_b), complex [n, d, d]
  at::Tensor mean_;
};

}  // namespace regroup
