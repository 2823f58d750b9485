// Shapes: N heads of d features, of which f are free, P planes.
#include "converter/pooling/solvers/head_similarity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "converter/pooling/solvers/head_moments.h"
#include "converter/pooling/solvers/pooling_errors.h"

namespace regroup {
namespace {

// Σ of the singular values of each E[x_i x_jᵀ] of gram [N, f, N, f]: [N, N].
at::Tensor nuclear_norms(const at::Tensor& gram, const std::atomic<bool>* stop) {
  const std::int64_t heads = gram.size(0);
  at::Tensor norms = at::zeros({heads, heads}, at::kDouble);
  for (std::int64_t i = 0; i < heads; ++i) {
    check_not_stopped(stop);
    const at::Tensor row = gram.select(0, i).transpose(0, 1).contiguous();  // [N, f, f]
    const at::Tensor squares = at::linalg_eigvalsh(at::bmm(row, row.transpose(1, 2)));
    norms.select(0, i).copy_(squares.clamp_min(0.0).sqrt().sum(1));
  }
  return norms;
}

std::vector<double> divided(const at::Tensor& products, const at::Tensor& powers) {
  const at::Tensor sizes = at::outer(powers.sqrt(), powers.sqrt());
  const at::Tensor cosines =
      at::where(sizes > 0.0, products / sizes.clamp_min(1e-300), at::zeros({}, at::kDouble));
  const at::Tensor result =
      at::where(at::eye(powers.size(0), at::kDouble) > 0.0, at::ones({}, at::kDouble), cosines)
          .contiguous();
  const double* first = result.const_data_ptr<double>();
  return {first, first + result.numel()};
}

SimilarityMatrix similarity_of(const HeadMoments& moments, std::int64_t heads,
                               std::int64_t head_dim, const HeadBasis& basis,
                               const std::atomic<bool>* stop) {
  const at::Tensor all = moments.free_gram(free_basis(head_dim), 0, heads);
  const at::Tensor raw = all.diagonal(0, 1, 3).sum(-1);  // tr E[x_i x_jᵀ], [N, N]
  const at::Tensor powers = raw.diagonal(0, 0, 1);
  at::Tensor aligned = basis.fixed() ? raw : at::zeros({heads, heads}, at::kDouble);
  if (!basis.free.empty()) {
    aligned = aligned + nuclear_norms(moments.free_gram(basis, 0, heads), stop);
  }
  if (basis.rotates()) {
    aligned = aligned + moments.plane_gram(basis, 0, heads).abs().sum(0);
  }
  return {divided(raw, powers), divided(aligned, powers)};
}

}  // namespace

HeadSimilarity similarity_of_heads(const AttentionHeads& heads, const PoolingTask& task) {
  const at::Tensor all = at::ones({heads.head_dim}, at::kDouble);
  return with_pooling_errors(task.method, [&] {
    const HeadMoments keys(heads.k, heads.head_dim, task.kv_inputs, all, task.stop);
    const HeadMoments values(heads.v, heads.head_dim, task.kv_inputs, all, task.stop);
    return HeadSimilarity{
        similarity_of(keys, heads.kv_heads, heads.head_dim, task.key_basis, task.stop),
        similarity_of(values, heads.kv_heads, heads.head_dim, free_basis(heads.head_dim),
                      task.stop)};
  });
}

}  // namespace regroup
