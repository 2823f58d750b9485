// The activation of a gated MLP, SwiGLU or GeGLU, on a CPU in one forward and one backward pass;
// saves only gate and up.
#pragma once

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether fused_gated_activation() supports these: SiLU or tanh GELU, on a CPU, of one dtype and
/// shape, fp32 or bf16.
bool can_fuse_gated_activation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// activation(gate) · up, with gradients of both. Computed in fp32, rounded once. Shazeer,
/// https://arxiv.org/abs/2002.05202
at::Tensor fused_gated_activation(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up);

}  // namespace regroup
