#include "uptrain/model/cached_attention.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

namespace regroup {
namespace {

// Arranges the queries of a group as rows, ordered by head and then by token: [B, H, T, d] -> [B,
// G, H/G·T, d].
at::Tensor fold(const at::Tensor& q, std::int64_t groups) {
  return q.reshape({q.size(0), groups, -1, q.size(3)});
}

// Does the same with a mask: [1, 1 or H, T, S] -> [1, 1 or G, H/G·T, S].
at::Tensor fold_mask(const at::Tensor& mask, std::int64_t query_heads, std::int64_t groups) {
  if (!mask.defined()) {
    return mask;
  }
  const std::int64_t tokens = mask.size(2), keys = mask.size(3);
  const std::int64_t heads = query_heads / groups;
  return mask.size(1) == 1
             ? mask.expand({1, heads, tokens, keys}).reshape({1, 1, heads * tokens, keys})
             : mask.reshape({1, groups, heads * tokens, keys});
}

// oneDNN first copies non-contiguous inputs. That takes several times as long as reading unused
// slots.
bool reads_whole_cache(const CachedKeys& keys) {
  return keys.k.is_cpu() && keys.k.scalar_type() != at::kFloat &&
         keys.k.scalar_type() != at::kDouble && 2 * keys.used >= keys.k.size(2);
}

// Computes two matrix products per group. rows: [B, G, n, d], bias: [1, 1 or G, n, S].
at::Tensor attend_by_products(const at::Tensor& rows, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& bias, double scale) {
  const at::Tensor scores =
      at::bmm(rows.flatten(0, 1), k.flatten(0, 1).transpose(1, 2));  // [B·G, n, S]
  const bool fp64 = scores.scalar_type() == at::kDouble;
  at::Tensor wide = scores.to(fp64 ? at::kDouble : at::kFloat) * scale;
  if (bias.defined()) {
    wide = wide.view({rows.size(0), rows.size(1), rows.size(2), -1}) + bias;
  }
  const at::Tensor weights = at::softmax(wide, -1).to(v.scalar_type());
  const at::Tensor flat = weights.view({-1, rows.size(2), k.size(2)});
  return at::bmm(flat, v.flatten(0, 1)).view_as(rows);
}

}  // namespace

at::Tensor attend_from_one_token(const at::Tensor& q, const CachedKeys& keys,
                                 const at::Tensor& bias, std::optional<double> scale) {
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const std::int64_t groups = keys.k.size(1);
  const at::Tensor rows = fold(q, groups);  // [B, G, H/G, d]
  at::Tensor row_bias = fold_mask(bias, q.size(1), groups);
  if (reads_whole_cache(keys)) {
    const double hidden = -std::numeric_limits<double>::infinity();
    const std::int64_t unused = keys.k.size(2) - keys.used;
    if (unused > 0 && !row_bias.defined()) {
      row_bias = at::zeros({1, 1, 1, keys.used}, q.options().dtype(at::kFloat));
    }
    if (unused > 0) {
      row_bias = at::constant_pad_nd(row_bias, {0, unused}, hidden);
    }
    return attend_by_products(rows, keys.k, keys.v, row_bias, factor).view_as(q);
  }
  const at::Tensor k = keys.k.narrow(2, 0, keys.used);
  const at::Tensor v = keys.v.narrow(2, 0, keys.used);
  if (q.is_cpu() || row_bias.defined()) {
    return attend_by_products(rows, k, v, row_bias, factor).view_as(q);
  }
  return at::scaled_dot_product_attention(rows, k, v, {}, /*dropout_p=*/0.0, /*is_causal=*/false,
                                          factor)
      .reshape(q.sizes());
}

at::Tensor attend_in_groups(const Heads& heads, const at::Tensor& mask,
                            std::optional<double> scale) {
  const std::int64_t groups = heads.k.size(1);
  const at::Tensor mixed = at::scaled_dot_product_attention(
      fold(heads.q, groups), heads.k, heads.v, fold_mask(mask, heads.q.size(1), groups),
      /*dropout_p=*/0.0, /*is_causal=*/false, scale);
  return mixed.reshape({heads.q.size(0), heads.q.size(1), heads.q.size(2), heads.v.size(3)});
}

}  // namespace regroup
