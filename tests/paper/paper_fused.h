// The fused kernels of GPUs (uptrain/ops/cuda/) on the paper device, run by the host.
#pragma once

#include "uptrain/ops/device_kernels.h"

namespace regroup {

/// The kernels, each call counted as one launch of "regroup::…".
const DeviceKernels& paper_kernels();

/// Gives the paper device these kernels, or takes them away, so that LibTorch's operators are used.
/// It has none at first.
void set_paper_kernels(bool fused);

}  // namespace regroup
