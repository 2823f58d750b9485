// Fused kernels of devices other than the CPU. Where there are none, or where they failed their
// check, callers use LibTorch's operators.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup {

enum class FusedKernel { kRotation, kGatedActivation, kRmsNorm, kCrossEntropy, kAdamW };

/// Queues a kernel on a stream of the current device, given as the device's own handle. Returns
/// null, or what went wrong.
template <typename Call>
using LaunchKernel = const char* (*)(const Call&, void* stream);

/// The kernels of one type of device.
struct DeviceKernels {
  LaunchKernel<kernels::RotationCall> rotate;
  LaunchKernel<kernels::GatedCall> activate_gated;
  LaunchKernel<kernels::GatedGradientCall> differentiate_gated;
  LaunchKernel<kernels::NormCall> normalise;
  LaunchKernel<kernels::NormGradientCall> differentiate_norm;
  LaunchKernel<kernels::CrossEntropyCall> take_cross_entropy;
  LaunchKernel<kernels::AdamWCall> update_by_adamw;
};

/// Sets the kernels of all devices of a type; null removes them. They must outlive their use. One
/// type of device at a time has kernels. Not while work is queued.
void set_device_kernels(c10::DeviceType type, const DeviceKernels* device_kernels);

/// The kernels that were compiled for CUDA; null if there are none.
const DeviceKernels* compiled_cuda_kernels();

/// Turns one kernel off until set_device_kernels() is called again.
void turn_off(FusedKernel kernel);

/// Whether the device has that kernel: a CPU has all of them.
bool has_fused_kernel(FusedKernel kernel, c10::Device device);

/// Whether tensors like x have that kernel: fp32 or bf16, on a device that has it.
bool has_fused_kernel(FusedKernel kernel, const at::Tensor& x);

/// The dtype of x, fp32 or bf16.
kernels::NumberType number_type(const at::Tensor& x);

/// Calls `launch` with the kernels of x's device and the handle of its current stream. Throws
/// c10::Error if it returns what went wrong.
void on_current_stream(
    const at::Tensor& x,
    const std::function<const char*(const DeviceKernels& device_kernels, void* stream)>& launch);

/// Launches one of these kernels, such as &DeviceKernels::rotate.
template <typename Call>
void launch_kernel(LaunchKernel<Call> DeviceKernels::* kernel, const Call& call,
                   const at::Tensor& x) {
  on_current_stream(x, [&](const DeviceKernels& device_kernels, void* stream) {
    return (device_kernels.*kernel)(call, stream);
  });
}

/// The same for tensors of devices; for those of a CPU, `on_cpu` computes it.
template <typename Call>
void launch_kernel(LaunchKernel<Call> DeviceKernels::* kernel, void (*on_cpu)(const Call&),
                   const Call& call, const at::Tensor& x) {
  if (x.is_cpu()) {
    on_cpu(call);
  } else {
    launch_kernel(kernel, call, x);
  }
}

}  // namespace regroup
