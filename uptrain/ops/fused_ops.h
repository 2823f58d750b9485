// Operations in one forward and one backward pass, on a CPU or by kernels of a device. LibTorch
// would make a pass for each product, sum and softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/rope.h"

namespace regroup {

/// Whether fused_rms_norm() supports these: of one dtype, fp32 or bf16, with kernels (see
/// has_fused_kernel()).
bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight);

/// x · weight / sqrt(mean(x²) + epsilon) over the last dimension, with gradients of both. Computed
/// in fp32, rounded once. x: [..., D], weight: [D]. Zhang and Sennrich,
/// https://arxiv.org/abs/1910.07467
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

struct NormedSum {
  at::Tensor sum, normal;
};

/// x + update, and fused_rms_norm() of it, with gradients of all three. One pass where the device
/// has kernels; on a CPU, the addition is a pass of its own. x, update: [..., D] of one dtype.
NormedSum fused_add_rms_norm(const at::Tensor& x, const at::Tensor& update,
                             const at::Tensor& weight, double epsilon);

/// Whether fused_rotation() supports these: of one dtype, fp32 or bf16, with a kernel (see
/// has_fused_kernel()).
bool can_fuse_rotation(const at::Tensor& x, const RopeTable& table);

/// rotate() computed in fp32 and rounded once. x: [B, heads, T, d], with any strides. The result
/// and the gradient of x are stored as [B, T, heads, d], the layout of projections.
at::Tensor fused_rotation(const at::Tensor& x, const RopeTable& table);

/// What a device's kernel is asked to turn x [B, heads, T, d] into y, of the same shape and dtype,
/// both with any strides, of which the last is 1; backwards if `inverse`. It points into x, y
/// and `table`, which must outlive the call.
kernels::RotationCall rotation_call(const at::Tensor& x, const at::Tensor& y,
                                    const RopeTable& table, bool inverse);

/// Whether fused_gated_activation() supports these: SiLU or tanh GELU, of one dtype and shape, fp32
/// or bf16, with kernels (see has_fused_kernel()).
bool can_fuse_gated_activation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// activation(gate) · up, with gradients of both. Computed in fp32, rounded once. Shazeer,
/// https://arxiv.org/abs/2002.05202
at::Tensor fused_gated_activation(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up);

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
