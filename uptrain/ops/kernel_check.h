// Fused kernels on a device, and how each proves itself at the start.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "uptrain/ops/device_kernels.h"

namespace regroup {

// AdamW's update of one tensor in one pass, by the fused kernel of a GPU.

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

/// The formula is in uptrain/train/optimizer.cpp. Throws c10::Error if the kernel cannot be
/// launched.
void update_by_fused_adamw(const AdamWTensors& tensors, const AdamWNumbers& numbers,
                           const AdamWScalars& scalars);

// Fused kernels of a device are compared with LibTorch's operators before they are used: nothing
// that runs only on the device can be trusted because it runs elsewhere.

/// Runs each kernel of `device` forward and backward, in fp32 and bf16, on a few small tensors that
/// do not depend on chance, and turns off those that fail or differ from LibTorch's operators in
/// fp64 by more than rounding. Returns one line for each of them.
std::vector<std::string> check_device_kernels(c10::Device device);

}  // namespace regroup
