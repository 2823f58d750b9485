// Moves the tensors of a batch from the host to a device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Copies tensors of the host to `device` in one transfer from pinned memory; the host
/// does not wait for it. Undefined tensors stay undefined. For the CPU they are returned as they
/// are.
std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, at::Device device);

}  // namespace regroup
