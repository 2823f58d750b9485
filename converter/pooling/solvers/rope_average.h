// What RoPE does to keys on their way to the queries that read them, on average over the distances
// at which a head looks.
//
// Shapes: n heads of d features, T distances. A key that stands t positions before the query is
// seen as S_t k, where S_t = R_{-t} turns every plane back by t times its frequency; what does not
// rotate stays.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

/// E over t of what S_t makes of matrices and vectors. In the basis of eigenvectors of S_t, with
/// eigenvalues e^{iωt}, an average multiplies the elements by φ(ω_a − ω_b), where φ(ω) = E e^{iωt}
/// is the characteristic function of the distances: 1 where features do not turn against each
/// other, 0 where they do so many times over.
class RopeAverage {
 public:
  /// distances: [n, T], how much of each head's attention lies at each distance; rows add up to 1.
  RopeAverage(const HeadBasis& basis, const at::Tensor& distances);

  /// Those of some heads, int64 [m].
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
  void find_eigenvectors(const HeadBasis& basis);

  Pairs into_, out_;    ///< into the basis of eigenvectors, and out of it
  at::Tensor factors_;  ///< φ(ω_a − ω_b), complex [n, d, d]
  at::Tensor mean_;
};

}  // namespace regroup
