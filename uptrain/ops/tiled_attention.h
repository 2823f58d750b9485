// bf16 attention on CPUs with bf16 matrix kernels: oneDNN products of small tiles, with softmax
// between them while they are in cache. LibTorch's own kernel uses MKL's products, which widen bf16
// to fp32 on non-Intel processors.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// Whether attend_in_tiles() supports these: bf16 on such a CPU, at least 64 queries, a multiple of
/// 16 dimensions.
bool can_attend_in_tiles(const Heads& heads);

/// Parameters of attend_in_tiles().
struct TiledAttention {
  double scale = 1.0;  ///< of q·k
  bool causal = true;  ///< query i sees keys 0 … S - T + i; S ≥ T
  at::Tensor bias;     ///< per key, fp32 [1, H, 1, S], without gradients; or undefined
};

/// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], stored as [B, T, H, d]. Scores, softmax and sums
/// are fp32, products have bf16 factors. Extra memory is linear in T and S. The result does not
/// depend on the number of threads. Dao, FlashAttention-2, https://arxiv.org/abs/2307.08691
at::Tensor attend_in_tiles(const Heads& heads, const TiledAttention& attention);

}  // namespace regroup
