#include "converter/pooling/solvers/rope_planes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>

namespace regroup {

RopePlaneSides sides_of(const HeadBasis& basis) {
  std::vector<std::int64_t> a, b;
  for (const auto& [first, second] : basis.rope_planes) {
    a.push_back(first);
    b.push_back(second);
  }
  return {at::tensor(a), at::tensor(b)};
}

void put_rope_planes(const at::Tensor& factors, const HeadBasis& basis,
                     const at::Tensor& matrices) {
  const at::Tensor real = at::real(factors).t().contiguous();       // [n, P]
  const at::Tensor imaginary = at::imag(factors).t().contiguous();  // [n, P]
  for (std::size_t p = 0; p < basis.rope_planes.size(); ++p) {
    const auto [a, b] = basis.rope_planes[p];
    const auto plane = static_cast<std::int64_t>(p);
    // (x + iy)(a + ib) = (xa − yb) + i(ya + xb)
    matrices.select(1, a).select(1, a).copy_(real.select(1, plane));
    matrices.select(1, a).select(1, b).copy_(-imaginary.select(1, plane));
    matrices.select(1, b).select(1, a).copy_(imaginary.select(1, plane));
    matrices.select(1, b).select(1, b).copy_(real.select(1, plane));
  }
}

void put_free(const at::Tensor& part, const HeadBasis& basis, const at::Tensor& matrices) {
  const at::Tensor rows = at::tensor(basis.free);
  at::Tensor wide = matrices.index_select(1, rows);
  wide.index_copy_(2, rows, part);
  matrices.index_copy_(1, rows, wide);
}

}  // namespace regroup
