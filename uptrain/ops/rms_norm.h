// RMSNorm on a CPU in one pass over the rows forward and one backward, where LibTorch takes a pass
// for each of its parts.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Whether fused_rms_norm() takes these: on a CPU, of one type, fp32 or bf16.
bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight);

/// x · weight / sqrt(mean(x²) + epsilon) over the last dimension, with gradients by both. Computed
/// in fp32, rounded once. x: [..., D], weight: [D].
/// Zhang and Sennrich, https://arxiv.org/abs/1910.07467
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace regroup
