#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/gated_kernel.h"
#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

const char* activate_gated_on_cuda(const GatedCall& call, void* stream) {
  return activate_gated(call, OnStream(stream));
}

const char* differentiate_gated_on_cuda(const GatedGradientCall& call, void* stream) {
  return differentiate_gated(call, OnStream(stream));
}

}  // namespace regroup::kernels
