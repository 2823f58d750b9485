// Attention of one new token of each sequence over a KV cache.
//
// Shapes: B sequences, C slots of a cache, S keys, H query heads, G kv heads, d head dimension.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// The cached keys and values that one more token of each sequence attends to.
struct CachedKeys {
  at::Tensor k, v;        ///< [B, G, C, d]; unused slots must be finite, too
  std::int64_t used = 0;  ///< S, counted from the first slot
};

/// One query per head: softmax(softcapped(scale · q kᵀ) + bias) v. q: [B, H, 1, d]; bias: [1, 1 or
/// H, 1, S] or undefined -> [B, H, 1, d]. On the CPU scores are rounded to the dtype of q and k, as
/// in torch.bmm.
at::Tensor attend_from_one_token(const at::Tensor& q, const CachedKeys& keys,
                                 const at::Tensor& bias, std::optional<double> scale,
                                 std::optional<double> softcap = std::nullopt);

}  // namespace regroup
