// RoPE in one pass over the heads, forward and backward, on a CPU or by a kernel of a device.
// LibTorch would make a pass for each product and sum.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/rope.h"

namespace regroup {

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

}  // namespace regroup
