// Attention in which the query heads of a group become rows of one matrix. Each key and value is
// read once per group and never repeated. Kernels without support for grouped heads can be used.
//
// Shapes: B sequences, T queries, S keys, H query heads, G kv heads, d head dimension.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// [B, H, T, d] -> [B, G, H/G·T, d]: the rows of a group are its heads, and in each head its
/// tokens.
at::Tensor fold_queries(const at::Tensor& q, std::int64_t groups);

/// The same of a mask, [1, 1 or H, T, S] -> [1, 1 or G, H/G·T, S]; undefined stays undefined.
at::Tensor fold_mask(const at::Tensor& mask, std::int64_t query_heads, std::int64_t groups);

/// attend_in_groups() with a mask that fold_mask() made.
at::Tensor attend_folded(const Heads& heads, const at::Tensor& folded_mask,
                         std::optional<double> scale);

/// softmax(scale · q kᵀ + mask) v -> [B, H, T, d]; `scale` is 1/√d unless given. mask: [1, 1 or H,
/// T, S] or undefined.
at::Tensor attend_in_groups(const Heads& heads, const at::Tensor& mask,
                            std::optional<double> scale);

}  // namespace regroup
