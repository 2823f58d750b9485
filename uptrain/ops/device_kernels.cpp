#include "uptrain/ops/device_kernels.h"

#include <atomic>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace regroup {
namespace {

// The backward pass reads these on threads of its own.
std::atomic<const DeviceKernels*> the_kernels = nullptr;
std::atomic<c10::DeviceType> the_type = c10::DeviceType::CPU;
std::atomic<unsigned> turned_off = 0;

unsigned bit_of(FusedKernel kernel) { return 1U << static_cast<unsigned>(kernel); }

// The current stream as the device's own handle. The default stream is null in CUDA, and the only
// one whose handle every supported LibTorch gives.
template <typename Stream>
void* handle_of(const Stream& stream) {
  if (stream.id() == 0) {
    return nullptr;
  }
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    TORCH_CHECK(false, "fused kernels need LibTorch's default stream");
  }
}

}  // namespace

void set_device_kernels(c10::DeviceType type, const DeviceKernels* device_kernels) {
  the_kernels = device_kernels;
  the_type = type;
  turned_off = 0;
}

const DeviceKernels* compiled_cuda_kernels() {
#if REGROUP_CUDA_KERNELS
  static constexpr DeviceKernels kCompiled = {kernels::rotate_on_cuda,
                                              kernels::activate_gated_on_cuda,
                                              kernels::differentiate_gated_on_cuda,
                                              kernels::normalise_on_cuda,
                                              kernels::differentiate_norm_on_cuda,
                                              kernels::take_cross_entropy_on_cuda,
                                              kernels::update_by_adamw_on_cuda};
  return &kCompiled;
#else
  return nullptr;
#endif
}

void turn_off(FusedKernel kernel) { turned_off |= bit_of(kernel); }

bool has_fused_kernel(FusedKernel kernel, c10::Device device) {
  return device.is_cpu() || (device.type() == the_type && the_kernels != nullptr &&
                             (turned_off & bit_of(kernel)) == 0);
}

bool has_fused_kernel(FusedKernel kernel, const at::Tensor& x) {
  return (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) &&
         has_fused_kernel(kernel, x.device());
}

kernels::NumberType number_type(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? kernels::NumberType::kFloat
                                       : kernels::NumberType::kBFloat16;
}

void on_current_stream(
    const at::Tensor& x,
    const std::function<const char*(const DeviceKernels& device_kernels, void* stream)>& launch) {
  const DeviceKernels* const all = the_kernels;
  TORCH_CHECK(all != nullptr && x.device().type() == the_type, "no fused kernels for ", x.device());
  const c10::DeviceGuard guard(x.device());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device());
  const char* const error = launch(*all, handle_of(stream));
  TORCH_CHECK(error == nullptr, "a fused kernel could not be launched: ", error);
}

}  // namespace regroup
