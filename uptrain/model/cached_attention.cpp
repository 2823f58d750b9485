#include "uptrain/model/cached_attention.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "uptrain/ops/grouped_attention.h"
#include "uptrain/ops/softcap.h"

namespace regroup {
namespace {

// oneDNN first copies non-contiguous inputs. That takes several times as long as reading unused
// slots.
bool reads_whole_cache(const CachedKeys& keys) {
  return keys.k.is_cpu() && keys.k.scalar_type() != at::kFloat &&
         keys.k.scalar_type() != at::kDouble && 2 * keys.used >= keys.k.size(2);
}

// Computes two matrix products per group. rows: [B, G, n, d], bias: [1, 1 or G, n, S].
at::Tensor attend_by_products(const at::Tensor& rows, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& bias, double scale, std::optional<double> softcap) {
  const at::Tensor scores =
      at::bmm(rows.flatten(0, 1), k.flatten(0, 1).transpose(1, 2));  // [B·G, n, S]
  const bool fp64 = scores.scalar_type() == at::kDouble;
  at::Tensor wide = softcapped(scores.to(fp64 ? at::kDouble : at::kFloat) * scale, softcap);
  if (bias.defined()) {
    wide = wide.view({rows.size(0), rows.size(1), rows.size(2), -1}) + bias;
  }
  const at::Tensor weights = at::softmax(wide, -1).to(v.scalar_type());
  const at::Tensor flat = weights.view({-1, rows.size(2), k.size(2)});
  return at::bmm(flat, v.flatten(0, 1)).view_as(rows);
}

}  // namespace

at::Tensor attend_from_one_token(const at::Tensor& q, const CachedKeys& keys,
                                 const at::Tensor& bias, std::optional<double> scale,
                                 std::optional<double> softcap) {
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const std::int64_t groups = keys.k.size(1);
  const at::Tensor rows = fold_queries(q, groups);  // [B, G, H/G, d]
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
    return attend_by_products(rows, keys.k, keys.v, row_bias, factor, softcap).view_as(q);
  }
  const at::Tensor k = keys.k.narrow(2, 0, keys.used);
  const at::Tensor v = keys.v.narrow(2, 0, keys.used);
  if (q.is_cpu() || row_bias.defined() || softcap) {
    return attend_by_products(rows, k, v, row_bias, factor, softcap).view_as(q);
  }
  return at::scaled_dot_product_attention(rows, k, v, {}, /*dropout_p=*/0.0, /*is_causal=*/false,
                                          factor)
      .reshape(q.sizes());
}

}  // namespace regroup
