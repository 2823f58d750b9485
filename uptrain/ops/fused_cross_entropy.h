// Cross-entropy and its gradient in place of the logits, on a CPU or by a kernel of a device.
// LibTorch would widen them and make a pass each for softmax, logarithm and scale.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Whether add_fused_cross_entropy() supports these: fp32 or bf16, contiguous rows, with a kernel
/// (see has_fused_kernel()).
bool can_fuse_cross_entropy(const at::Tensor& logits);

/// Adds scale · Σ -log softmax(logits)[target] to `loss`, an fp32 scalar. If `with_gradient`,
/// overwrites `logits` with their gradient, computed in fp32 and rounded once. The sum does not
/// depend on the number of threads. Targets outside [0, V): throws kBadInput on a CPU; elsewhere
/// their losses and gradients are NaN, since a check would wait for the device. logits: [n, V],
/// targets: int64 [n].
void add_fused_cross_entropy(const at::Tensor& loss, const at::Tensor& logits,
                             const at::Tensor& targets, double scale, bool with_gradient);

}  // namespace regroup
