#include "uptrain/ops/grouped_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace regroup {

at::Tensor fold_queries(const at::Tensor& q, std::int64_t groups) {
  return q.reshape({q.size(0), groups, -1, q.size(3)});
}

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

at::Tensor attend_folded(const Heads& heads, const at::Tensor& folded_mask,
                         std::optional<double> scale) {
  const at::Tensor mixed = at::scaled_dot_product_attention(
      fold_queries(heads.q, heads.k.size(1)), heads.k, heads.v,
      folded_mask.defined() ? std::optional(folded_mask) : std::nullopt,
      /*dropout_p=*/0.0, /*is_causal=*/false, scale);
  return mixed.reshape({heads.q.size(0), heads.q.size(1), heads.q.size(2), heads.v.size(3)});
}

at::Tensor attend_in_groups(const Heads& heads, const at::Tensor& mask,
                            std::optional<double> scale) {
  return attend_folded(heads, fold_mask(mask, heads.q.size(1), heads.k.size(1)), scale);
}

}  // namespace regroup
