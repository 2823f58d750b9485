#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/attention_tile.h"
#include "uptrain/ops/tiled_passes.h"

namespace regroup {
namespace {

using c10::BFloat16;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor with_whole_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// A tensor [B, n, T, d] with the memory layout of [B, T, n, d].
at::Tensor empty_heads(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options())
      .transpose(1, 2);
}

// [B, G, S, d] -> [B, G, d, S'], padded with zeros to an even S'.
at::Tensor dimensions_first(const at::Tensor& x) {
  const std::int64_t length = x.size(2);
  at::Tensor turned =
      at::zeros({x.size(0), x.size(1), x.size(3), length + length % 2}, x.options());
  turned.narrow(-1, 0, length).copy_(x.transpose(2, 3));
  return turned;
}

// The sum over the query heads of each group: [B, S, H, d] -> [B, G, S, d].
at::Tensor sum_groups(const at::Tensor& by_heads, const at::Tensor& like) {
  const std::int64_t groups = like.size(1);
  return by_heads.unflatten(2, {groups, by_heads.size(2) / groups})
      .sum(3)
      .to(like.scalar_type())
      .transpose(1, 2);
}

struct TiledAttentionFunction : torch::autograd::Function<TiledAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
                            const at::Tensor& keys, const at::Tensor& values,
                            const TiledAttention& attention) {
    const Heads heads = {with_whole_rows(queries), with_whole_rows(keys), with_whole_rows(values)};
    const TiledShape shape(heads, attention);
    const at::Tensor output = empty_heads(heads.q);
    const at::Tensor log_sum =
        at::empty({shape.batch, shape.heads, shape.queries}, heads.q.options().dtype(at::kFloat));
    const at::Tensor turned_v = dimensions_first(heads.v);
    attend_forward({shape, read(heads.q), read(heads.k), read(turned_v), written<BFloat16>(output),
                    log_sum.mutable_data_ptr<float>()});
    context->save_for_backward({heads.q, heads.k, heads.v, output, log_sum, attention.bias});
    context->saved_data["scale"] = attention.scale;
    context->saved_data["causal"] = attention.causal;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Heads heads = {saved[0], saved[1], saved[2]};
    const TiledAttention attention = {context->saved_data["scale"].toDouble(),
                                      context->saved_data["causal"].toBool(), saved[5]};
    const TiledShape shape(heads, attention);
    const at::Tensor outer = with_whole_rows(gradients.front());
    const at::Tensor turned_k = dimensions_first(heads.k);
    const at::Tensor by_q = empty_heads(heads.q);
    const at::Tensor by_k = at::zeros({shape.batch, shape.keys, shape.heads, shape.width},
                                      heads.q.options().dtype(at::kFloat));
    const at::Tensor by_v = at::zeros(by_k.sizes(), by_k.options());
    attend_backward({shape, read(heads.q), read(heads.k), read(heads.v), read(turned_k),
                     read(saved[3]), read(outer), saved[4].const_data_ptr<float>(),
                     written<BFloat16>(by_q), written<float>(by_k.transpose(1, 2)),
                     written<float>(by_v.transpose(1, 2))});
    return {by_q, sum_groups(by_k, heads.k), sum_groups(by_v, heads.v), at::Tensor()};
  }
};

// Support can only be determined by trying. The product of 32 ones and 32 twos must be 64.
bool try_pairs() {
  const std::vector<c10::BFloat16> ones(32 * 32, c10::BFloat16(1.0F));
  const std::vector<Pair> twos(16 * 32, 0x40004000U);
  std::vector<float> sums(32 * 32, 0.0F);
  try {
    multiply({32, 32, 32}, {ones.data(), 32}, twos.data(), {sums.data(), 32, false});
    release_products();
  } catch (const std::exception&) {
    return false;
  }
  return std::ranges::all_of(sums, [](float sum) { return sum == 64.0F; });
}

}  // namespace

bool can_attend_in_tiles(const Heads& heads) {
  const auto fits = [](const at::Tensor& x) {
    return x.is_cpu() && x.scalar_type() == at::kBFloat16;
  };
  const std::int64_t width = heads.q.size(3);
  if (!fits(heads.q) || !fits(heads.k) || !fits(heads.v) || heads.q.size(2) < kTileQueries ||
      width % 16 != 0 || heads.v.size(3) != width || heads.k.size(2) == 0) {
    return false;
  }
  return can_multiply_pairs();
}

at::Tensor attend_in_tiles(const Heads& heads, const TiledAttention& attention) {
  return TiledAttentionFunction::apply(heads.q, heads.k, heads.v, attention);
}

bool can_multiply_pairs() {
  static const bool can = try_pairs();
  return can;
}

#ifdef CPUBLAS_BRGEMM_BF16BF16F32

void multiply(const ProductSizes& sizes, const ProductRows& rows, const Pair* pairs,
              const ProductSums& sums) {
  at::native::cpublas::brgemm(sizes.m, sizes.n, sizes.k, rows.stride, sizes.n, sums.stride,
                              sums.keep, rows.data, reinterpret_cast<const c10::BFloat16*>(pairs),
                              sums.data, /*is_vnni=*/true);
}

void release_products() { at::native::cpublas::brgemm_release(/*is_vnni=*/true); }

#else  // an older LibTorch

void multiply(const ProductSizes&, const ProductRows&, const Pair*, const ProductSums&) {
  throw_environment("this LibTorch has no products of pairs");
}

void release_products() {}

#endif

}  // namespace regroup
