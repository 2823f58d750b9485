#include "converter/pooling/planes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>

namespace regroup {
namespace {

struct Sides {
  at::Tensor a, b;  // the first and the second feature of each plane, int64 [P]
};

Sides sides_of(const HeadBasis& basis) {
  std::vector<std::int64_t> a, b;
  for (const auto& [first, second] : basis.planes) {
    a.push_back(first);
    b.push_back(second);
  }
  return {at::tensor(a), at::tensor(b)};
}

// Entries (rows[p], columns[p]) of every pair of heads: [P, n, n].
at::Tensor entries(const at::Tensor& gram, const at::Tensor& rows, const at::Tensor& columns) {
  return gram.index_select(1, rows).index_select(3, columns).diagonal(0, 1, 3).permute({2, 0, 1});
}

}  // namespace

PlaneProblem planes_of(const GroupProblem& problem) {
  const auto [a, b] = sides_of(problem.basis);
  const at::Tensor& gram = problem.gram;
  const at::Tensor real = entries(gram, a, a) + entries(gram, b, b);
  const at::Tensor imaginary = entries(gram, a, b) - entries(gram, b, a);
  const at::Tensor diagonal = problem.weight.diagonal(0, 1, 2);  // [n, d]
  return {at::complex(real.contiguous(), imaginary.contiguous()),
          (diagonal.index_select(1, a) + diagonal.index_select(1, b)).t()};
}

void put_planes(const at::Tensor& factors, const HeadBasis& basis, const at::Tensor& matrices) {
  const at::Tensor real = at::real(factors).t().contiguous();       // [n, P]
  const at::Tensor imaginary = at::imag(factors).t().contiguous();  // [n, P]
  for (std::size_t p = 0; p < basis.planes.size(); ++p) {
    const auto [a, b] = basis.planes[p];
    const auto plane = static_cast<std::int64_t>(p);
    // (x + iy)(a + ib) = (xa − yb) + i(ya + xb)
    matrices.select(1, a).select(1, a).copy_(real.select(1, plane));
    matrices.select(1, a).select(1, b).copy_(-imaginary.select(1, plane));
    matrices.select(1, b).select(1, a).copy_(imaginary.select(1, plane));
    matrices.select(1, b).select(1, b).copy_(real.select(1, plane));
  }
}

GroupProblem free_part(const GroupProblem& problem) {
  const at::Tensor rows = at::tensor(problem.basis.free);
  return {problem.gram.index_select(1, rows).index_select(3, rows),
          problem.weight.index_select(1, rows).index_select(2, rows), free_basis(rows.size(0))};
}

void put_free_part(const at::Tensor& part, const HeadBasis& basis, const at::Tensor& matrices) {
  const at::Tensor rows = at::tensor(basis.free);
  at::Tensor wide = matrices.index_select(1, rows);
  wide.index_copy_(2, rows, part);
  matrices.index_copy_(1, rows, wide);
}

}  // namespace regroup
