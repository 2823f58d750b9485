// AdamW's update of one tensor in one pass, by the fused kernel of a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace regroup {

/// Tensors of the same shape that one update reads and writes, all dense in the same order.
struct AdamWTensors {
  at::Tensor master;         ///< fp32
  at::Tensor copy;           ///< bf16, gets the rounded master; or undefined
  at::Tensor first, second;  ///< the moments, both fp32 or both bf16
  at::Tensor gradient;       ///< fp32 or bf16, any strides
};

/// Of one update; `decay` is the learning rate times the weight decay.
struct AdamWNumbers {
  double rate, decay, beta1, beta2, epsilon;
};

/// fp32 scalars on the tensors' device.
struct AdamWScalars {
  at::Tensor divisor;  ///< of the gradient
  at::Tensor skip;     ///< 1: nothing is written
  at::Tensor updates;  ///< made, with this one
};

/// Whether a device has the kernel; a CPU has none.
bool can_fuse_adamw(c10::Device device);

/// The formula of adamw.h. Throws c10::Error if the kernel cannot be launched.
void update_by_fused_adamw(const AdamWTensors& tensors, const AdamWNumbers& numbers,
                           const AdamWScalars& scalars);

}  // namespace regroup
