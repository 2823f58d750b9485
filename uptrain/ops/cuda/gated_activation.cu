#include "uptrain/ops/cuda/cuda_kernels.h"
#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/gated_kernel.h"

namespace regroup::kernels {

const char* activate_gated_on_cuda(const GatedCall& call, void* stream) {
  return activate_gated(call, OnStream(stream));
}

const char* differentiate_gated_on_cuda(const GatedGradientCall& call, void* stream) {
  return differentiate_gated(call, OnStream(stream));
}

}  // namespace regroup::kernels
