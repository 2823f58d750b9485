#include "uptrain/ops/fused_adamw.h"

#include <cmath>

#include "uptrain/ops/device_kernels.h"

namespace regroup {

bool can_fuse_adamw(c10::Device device) {
  return !device.is_cpu() && has_fused_kernel(FusedKernel::kAdamW, device);
}

void update_by_fused_adamw(const AdamWTensors& tensors, const AdamWNumbers& numbers,
                           const AdamWScalars& scalars) {
  const at::Tensor gradient = tensors.gradient.contiguous();
  const kernels::AdamWCall call = {
      .gradient_type = number_type(gradient),
      .moment_type = number_type(tensors.first),
      .gradient = gradient.const_data_ptr(),
      .master = tensors.master.mutable_data_ptr<float>(),
      .first = tensors.first.mutable_data_ptr(),
      .second = tensors.second.mutable_data_ptr(),
      .copy = tensors.copy.defined() ? tensors.copy.mutable_data_ptr() : nullptr,
      .divisor = scalars.divisor.const_data_ptr<float>(),
      .skip = scalars.skip.const_data_ptr<float>(),
      .updates = scalars.updates.const_data_ptr<float>(),
      .count = gradient.numel(),
      .rate = static_cast<float>(numbers.rate),
      .decay = static_cast<float>(numbers.decay),
      .one_less_beta1 = static_cast<float>(1.0 - numbers.beta1),
      .one_less_beta2 = static_cast<float>(1.0 - numbers.beta2),
      .log_beta1 = static_cast<float>(std::log(numbers.beta1)),
      .log_beta2 = static_cast<float>(std::log(numbers.beta2)),
      .epsilon = static_cast<float>(numbers.epsilon)};
  on_current_stream(gradient, [&](const DeviceKernels& device_kernels, void* stream) {
    return device_kernels.update_by_adamw(call, stream);
  });
}

}  // namespace regroup
