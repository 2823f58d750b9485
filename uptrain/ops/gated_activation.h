// The activation of a gated MLP, SwiGLU or GeGLU, on a CPU in one pass forward and one backward,
// which keep gate and up alone.
#pragma once

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether fused_gated_activation() takes these: SiLU or GELU by tanh, on a CPU, of one type and
/// shape, fp32 or bf16.
bool can_fuse_gated_activation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// activation(gate) · up, with gradients by both. Computed in fp32, rounded once.
/// Shazeer, https://arxiv.org/abs/2002.05202
at::Tensor fused_gated_activation(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up);

}  // namespace regroup
