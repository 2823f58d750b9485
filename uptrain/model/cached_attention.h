// Attention of new tokens over a cache of keys and values. The query heads of a group are made rows
// of one matrix, so that each key and value is read once for all of them, and none is repeated.
//
// Shapes: B sequences, T queries each, C slots of a cache, S keys, H query heads, G kv heads, d
// head dimension.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// What one more token of each sequence looks at.
struct CachedKeys {
  at::Tensor k, v;        ///< [B, G, C, d]; finite numbers in unused slots, too
  std::int64_t used = 0;  ///< S, slots from the first on
};

/// One query per head: softmax(scale · q kᵀ + bias) v. q: [B, H, 1, d]; bias: [1, 1 or H, 1, S] or
/// undefined -> [B, H, 1, d]. On the CPU scores are rounded to the type of q and k, as torch.bmm
/// does.
at::Tensor attend_from_one_token(const at::Tensor& q, const CachedKeys& keys,
                                 const at::Tensor& bias, std::optional<double> scale);

/// Several queries per head under a mask [1, 1 or H, T, S] -> [B, H, T, d].
at::Tensor attend_in_groups(const Heads& heads, const at::Tensor& mask,
                            std::optional<double> scale);

}  // namespace regroup
