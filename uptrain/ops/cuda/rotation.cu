#include "uptrain/ops/cuda/cuda_launcher.cuh"
#include "uptrain/ops/cuda/kernel_calls.h"
#include "uptrain/ops/cuda/rotation_kernel.h"

namespace regroup::kernels {

const char* rotate_on_cuda(const RotationCall& call, void* stream) {
  return rotate(call, OnStream(stream));
}

}  // namespace regroup::kernels
