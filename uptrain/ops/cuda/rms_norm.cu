#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/kernel_calls.h"
#include "uptrain/ops/cuda/norm_kernel.h"

namespace regroup::kernels {

const char* normalise_on_cuda(const NormCall& call, void* stream) {
  return normalise(call, OnStream(stream));
}

const char* differentiate_norm_on_cuda(const NormGradientCall& call, void* stream) {
  return differentiate_norm(call, OnStream(stream));
}

}  // namespace regroup::kernels
