// The fused kernels compiled for GPUs. Each function queues its work on a stream of the current
// device, a cudaStream_t, and returns null, or what went wrong.
#pragma once

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

const char* rotate_on_cuda(const RotationCall& call, void* stream);
const char* activate_gated_on_cuda(const GatedCall& call, void* stream);
const char* differentiate_gated_on_cuda(const GatedGradientCall& call, void* stream);
const char* normalise_on_cuda(const NormCall& call, void* stream);
const char* differentiate_norm_on_cuda(const NormGradientCall& call, void* stream);
const char* update_by_adamw_on_cuda(const AdamWCall& call, void* stream);
const char* take_cross_entropy_on_cuda(const CrossEntropyCall& call, void* stream);

}  // namespace regroup::kernels
