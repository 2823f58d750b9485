// Soft-capped numbers, c · tanh(x / c), and attention with soft-capped scores. Gemma 2,
// https://arxiv.org/abs/2408.00118, section 2.
//
// Shapes: B sequences, T queries, S keys, H query heads, d head dimension.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// c · tanh(x / c); x itself if there is no cap.
at::Tensor softcapped(const at::Tensor& x, std::optional<double> cap);

struct SoftcapAttention {
  double cap = 0.0;
  std::optional<double> scale = std::nullopt;  ///< of q·k; none: 1/√d
  bool causal = true;                          ///< keys after a query are hidden; see attention.h
  std::optional<std::int64_t> window =
      std::nullopt;      ///< with `causal`: keys that a query sees, itself included
  at::Tensor mask = {};  ///< [1, 1, T, S], without gradients; or undefined
};

/// softmax(softcapped(scale · q kᵀ) + mask) v -> [B, H, T, d]. No fused kernel computes it: queries
/// are taken in blocks, also in the backward pass, which computes scores again. Memory grows with
/// T + S.
at::Tensor attend_softcapped(const Heads& heads, const SoftcapAttention& attention);

}  // namespace regroup
