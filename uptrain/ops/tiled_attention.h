// Attention in bf16 on CPUs whose matrix kernels multiply bf16: oneDNN's kernels on small tiles,
// with softmax between them while they are in the cache. LibTorch's own kernel takes MKL's products
// there, which widen bf16 to fp32 on other processors than Intel's.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/attention.h"

namespace regroup {

/// Whether attend_in_tiles() takes these: bf16 on such a CPU, 64 queries or more, a multiple of 16
/// dimensions.
bool can_attend_in_tiles(const Heads& heads);

/// What attend_in_tiles() is told beside the heads.
struct TiledAttention {
  double scale = 1.0;  ///< of q·k
  bool causal = true;  ///< query i sees keys 0 … i
  at::Tensor bias;     ///< of each key, fp32 [1, H, 1, S], without gradients; or undefined
};

/// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], as it lies in [B, T, H, d]. Scores, softmax and
/// sums are fp32, products have bf16 factors; memory beside the result is linear in T and S. The
/// result does not depend on the number of threads.
/// Dao, FlashAttention-2, https://arxiv.org/abs/2307.08691
at::Tensor attend_in_tiles(const Heads& heads, const TiledAttention& attention);

}  // namespace regroup
