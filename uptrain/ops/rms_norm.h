// RMSNorm on a CPU in one forward and one backward pass over the rows. LibTorch would make a pass
// for each operation.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Whether fused_rms_norm() supports these: on a CPU, of one dtype, fp32 or bf16.
bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight);

/// x · weight / sqrt(mean(x²) + epsilon) over the last dimension, with gradients of both. Computed
/// in fp32, rounded once. x: [..., D], weight: [D]. Zhang and Sennrich,
/// https://arxiv.org/abs/1910.07467
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace regroup
