// Cross-entropy and its gradient on a CPU, in place of the logits. LibTorch would widen them and
// make a pass each for softmax, logarithm and scale.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Whether add_fused_cross_entropy() supports these: on a CPU, fp32 or bf16, contiguous rows.
bool can_fuse_cross_entropy(const at::Tensor& logits);

/// Adds scale · Σ -log softmax(logits)[target] to `loss`, an fp32 scalar. If `with_gradient`,
/// overwrites `logits` with their gradient, computed in fp32 and rounded once. The sum does not
/// depend on the number of threads. Throws kBadInput for targets outside [0, V). logits: [n, V],
/// targets: int64 [n].
void add_fused_cross_entropy(const at::Tensor& loss, const at::Tensor& logits,
                             const at::Tensor& targets, double scale, bool with_gradient);

}  // namespace regroup
