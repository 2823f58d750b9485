// Fused kernels of a device are compared with LibTorch's operators before they are used: nothing
// that runs only on the device can be trusted because it runs elsewhere.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace regroup {

/// Runs each kernel of `device` forward and backward, in fp32 and bf16, on a few small tensors that
/// do not depend on chance, and turns off those that fail or differ from LibTorch's operators in
/// fp64 by more than rounding. Returns one line for each of them.
std::vector<std::string> check_device_kernels(c10::Device device);

}  // namespace regroup
