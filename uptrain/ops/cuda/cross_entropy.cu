#include "uptrain/ops/cuda/cross_entropy_kernel.h"
#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

const char* take_cross_entropy_on_cuda(const CrossEntropyCall& call, void* stream) {
  return take_cross_entropy(call, OnStream(stream));
}

}  // namespace regroup::kernels
