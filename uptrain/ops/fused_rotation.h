// RoPE's rotation on a CPU in one pass over the heads, forward and backward, where LibTorch takes a
// pass for each product and sum.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/rope.h"

namespace regroup {

/// Whether fused_rotation() takes these: on a CPU, of one type, fp32 or bf16.
bool can_fuse_rotation(const at::Tensor& x, const RopeTable& table);

/// rotate() computed in fp32 and rounded once. x: [B, heads, T, d], as it lies in memory; the
/// result and the gradient by x lie as [B, T, heads, d], as projections write and read them.
at::Tensor fused_rotation(const at::Tensor& x, const RopeTable& table);

}  // namespace regroup
