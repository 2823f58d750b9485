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
#include <ATen/ops/zeros_like.h>

#include "converter/pooling/solvers/head_moments.h"
#include "converter/pooling/solvers/pooling_errors.h"

namespace regroup {
namespace {

// Σ of the singular values of each E[x_i x_jᵀ] of gram [N, f, N, f]: [N, N].
at::Tensor nuclear_norms(const at::Tensor& gram, const std::atomic<bool>* stop) {
  const std::int64_t heads = gram.size(0);
  at::Tensor norms = at::zeros({heads, heads}, gram.options());
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
  const at::TensorOptions like = powers.options();
  const at::Tensor cosines =
      at::where(sizes > 0.0, products / sizes.clamp_min(1e-300), at::zeros({}, like));
  const at::Tensor result =
      at::where(at::eye(powers.size(0), like) > 0.0, at::ones({}, like), cosines)
          .to(at::kCPU)
          .contiguous();
  const double* first = result.const_data_ptr<double>();
  return {first, first + result.numel()};
}

SimilarityMatrix similarity_of(const HeadMoments& moments, std::int64_t heads,
                               const HeadBasis& basis, c10::Device device,
                               const std::atomic<bool>* stop) {
  const std::int64_t head_dim = moments.means().size(1);
  const BasisIndices turnable(basis, device);
  const at::Tensor all = moments.free_gram(BasisIndices(free_basis(head_dim), device), 0, heads);
  const at::Tensor raw = all.diagonal(0, 1, 3).sum(-1);  // tr E[x_i x_jᵀ], [N, N]
  const at::Tensor powers = raw.diagonal(0, 0, 1);
  at::Tensor aligned = basis.fixed() ? raw : at::zeros_like(raw);
  if (turnable.has_free()) {
    aligned = aligned + nuclear_norms(moments.free_gram(turnable, 0, heads), stop);
  }
  if (turnable.rotates()) {
    aligned = aligned + moments.plane_gram(turnable, 0, heads).abs().sum(0);
  }
  return {divided(raw, powers), divided(aligned, powers)};
}

}  // namespace

HeadSimilarity similarity_of_heads(const AttentionHeads& heads, const PoolingTask& task) {
  return with_pooling_errors(task.method, [&] {
    const c10::Device device(task.device);
    const at::Tensor all =
        at::ones({heads.head_dim}, at::TensorOptions(at::kDouble).device(device));
    const MomentTensors inputs(task.kv_inputs, device);
    const HeadMoments keys(HeadMaps(heads.k, heads.head_dim, device), inputs, all, task.stop);
    const HeadMoments values(HeadMaps(heads.v, heads.head_dim, device), inputs, all, task.stop);
    return HeadSimilarity{
        similarity_of(keys, heads.kv_heads, task.key_basis, device, task.stop),
        similarity_of(values, heads.kv_heads, free_basis(heads.head_dim), device, task.stop)};
  });
}

}  // namespace regroup
