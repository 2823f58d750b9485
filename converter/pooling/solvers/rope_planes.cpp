#include "converter/pooling/solvers/rope_planes.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>

namespace regroup {

BasisIndices::BasisIndices(const HeadBasis& basis, c10::Device device)
    : free(at::tensor(basis.free).to(device)), head_dim(basis.head_dim()) {
  std::vector<std::int64_t> first, second;
  for (const auto& [x, y] : basis.rope_planes) {
    first.push_back(x);
    second.push_back(y);
  }
  a = at::tensor(first).to(device);
  b = at::tensor(second).to(device);
}

void put_rope_planes(const at::Tensor& factors, const BasisIndices& basis,
                     const at::Tensor& matrices) {
  const std::int64_t d = basis.head_dim;
  const at::Tensor real = at::real(factors).t(), imaginary = at::imag(factors).t();  // [n, P]
  const at::Tensor flat = matrices.view({-1, d * d});
  // (x + iy)(a + ib) = (xa − yb) + i(ya + xb)
  flat.index_copy_(1, basis.a * d + basis.a, real);
  flat.index_copy_(1, basis.a * d + basis.b, -imaginary);
  flat.index_copy_(1, basis.b * d + basis.a, imaginary);
  flat.index_copy_(1, basis.b * d + basis.b, real);
}

void put_free(const at::Tensor& part, const BasisIndices& basis, const at::Tensor& matrices) {
  at::Tensor wide = matrices.index_select(1, basis.free);
  wide.index_copy_(2, basis.free, part);
  matrices.index_copy_(1, basis.free, wide);
}

}  // namespace regroup
