// RMSNorm in one forward and one backward pass over the rows, on a CPU or by kernels of a device.
// LibTorch would make a pass for each operation.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Whether fused_rms_norm() supports these: of one dtype, fp32 or bf16, with kernels (see
/// has_fused_kernel()).
bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight);

/// x · weight / sqrt(mean(x²) + epsilon) over the last dimension, with gradients of both. Computed
/// in fp32, rounded once. x: [..., D], weight: [D]. Zhang and Sennrich,
/// https://arxiv.org/abs/1910.07467
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// A sum and its norm.
struct NormedSum {
  at::Tensor sum, normal;
};

/// x + update, and fused_rms_norm() of it, with gradients of all three. One pass where the device
/// has kernels; on a CPU, the addition is a pass of its own. x, update: [..., D] of one dtype.
NormedSum fused_add_rms_norm(const at::Tensor& x, const at::Tensor& update,
                             const at::Tensor& weight, double epsilon);

}  // namespace regroup
