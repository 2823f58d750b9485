#include "converter/pooling/solvers/rope_average.h"

#include <numbers>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/real.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/complex.h>

namespace regroup {
namespace {

using Number = c10::complex<double>;

constexpr double kHalf = 0.5 * std::numbers::sqrt2;  // 1/√2

// The frequency ω of the eigenvector at each feature's index.
std::vector<double> turning_of(const HeadBasis& basis) {
  std::vector<double> omega(static_cast<std::size_t>(basis.head_dim()), 0.0);
  for (std::size_t p = 0; p < basis.rope_planes.size(); ++p) {
    omega[static_cast<std::size_t>(basis.rope_planes[p].first)] = -basis.frequencies[p];
    omega[static_cast<std::size_t>(basis.rope_planes[p].second)] = basis.frequencies[p];
  }
  return omega;
}

}  // namespace

at::Tensor RopeAverage::Pairs::times_rows(const at::Tensor& matrices) const {
  return first.unsqueeze(1) * matrices.index_select(1, a) +
         second.unsqueeze(1) * matrices.index_select(1, b);
}

at::Tensor RopeAverage::Pairs::conjugate(const at::Tensor& matrices) const {
  return times_rows(times_rows(matrices).transpose(1, 2).conj().resolve_conj())
      .transpose(1, 2)
      .conj()
      .resolve_conj();
}

void RopeAverage::find_eigenvectors(const HeadBasis& basis, c10::Device device) {
  const auto d = static_cast<std::size_t>(basis.head_dim());
  std::vector<std::int64_t> a(d), b(d);
  std::vector<Number> first(d, 1.0), second(d, 0.0), first_out(d, 1.0), second_out(d, 0.0);
  for (const std::int64_t feature : basis.free) {
    a[static_cast<std::size_t>(feature)] = b[static_cast<std::size_t>(feature)] = feature;
  }
  for (const auto& [x, y] : basis.rope_planes) {
    const auto left = static_cast<std::size_t>(x), right = static_cast<std::size_t>(y);
    a[left] = a[right] = x;
    b[left] = b[right] = y;
    // x + iy, which S_t rotates back, and its conjugate.
    first[left] = first[right] = kHalf;
    second[left] = {0.0, kHalf};
    second[right] = {0.0, -kHalf};
    first_out[left] = second_out[left] = kHalf;
    first_out[right] = {0.0, -kHalf};
    second_out[right] = {0.0, kHalf};
  }
  into_ = {at::tensor(a).to(device), at::tensor(b).to(device), at::tensor(first).to(device),
           at::tensor(second).to(device)};
  out_ = {into_.a, into_.b, at::tensor(first_out).to(device), at::tensor(second_out).to(device)};
}

RopeAverage::RopeAverage(const HeadBasis& basis, const at::Tensor& distances) {
  find_eigenvectors(basis, distances.device());
  const at::Tensor angles =
      at::outer(at::tensor(turning_of(basis)).to(distances.device()),
                at::arange(distances.size(1), distances.options()));  // [d, T]
  const at::Tensor turning = at::polar(at::ones_like(angles), angles);
  const at::Tensor back = turning.t().conj().resolve_conj();  // [T, d]
  std::vector<at::Tensor> factors;
  for (std::int64_t j = 0; j < distances.size(0); ++j) {
    factors.push_back(at::matmul(turning * distances.select(0, j), back));
  }
  factors_ = at::stack(factors);
  const at::Tensor means = at::matmul(distances.to(at::kComplexDouble), turning.t());  // [n, d]
  mean_ = at::real(out_.conjugate(at::diag_embed(means))).contiguous();
}

RopeAverage RopeAverage::of(const at::Tensor& heads) const {
  RopeAverage result;
  result.into_ = into_;
  result.out_ = out_;
  result.factors_ = factors_.index_select(0, heads);
  result.mean_ = mean_.index_select(0, heads);
  return result;
}

at::Tensor RopeAverage::seen(const at::Tensor& matrices) const {
  return at::real(out_.conjugate(factors_ * into_.conjugate(matrices))).contiguous();
}

at::Tensor RopeAverage::unseen(const at::Tensor& matrices) const {
  return at::real(out_.conjugate(factors_.conj() * into_.conjugate(matrices))).contiguous();
}

}  // namespace regroup
