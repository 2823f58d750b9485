#include "uptrain/ops/cuda/adamw_kernel.h"
#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

const char* update_by_adamw_on_cuda(const AdamWCall& call, void* stream) {
  return update_by_adamw(call, OnStream(stream));
}

}  // namespace regroup::kernels
