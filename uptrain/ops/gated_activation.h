// The activation of a gated MLP, SwiGLU or GeGLU, in one forward and one backward pass, on a CPU or
// by kernels of a device; saves only gate and up.
#pragma once

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether fused_gated_activation() supports these: SiLU or tanh GELU, of one dtype and shape, fp32
/// or bf16, with kernels (see has_fused_kernel()).
bool can_fuse_gated_activation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// activation(gate) · up, with gradients of both. Computed in fp32, rounded once. Shazeer,
/// https://arxiv.org/abs/2002.05202
at::Tensor fused_gated_activation(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up);

}  // namespace regroup
