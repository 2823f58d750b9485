// The c10d backends that move tensors between ranks: NCCL for GPUs, Gloo for CPUs.
#pragma once

#include <chrono>
#include <functional>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace regroup {

/// Makes a backend, as make_backend() does.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks, c10::Device device,
    std::chrono::milliseconds timeout)>;

/// Sets the backend for another type of device. Tests use it for theirs. Not safe while another
/// thread makes a backend.
void register_backend(c10::DeviceType type, BackendFactory factory);

/// Connects rank number `rank` of `ranks` to all others through `store`, for tensors on `device`.
/// All ranks call this. An operation that takes longer than `timeout` fails. Throws kUsage for a
/// GPU if this build has no NCCL, and whatever c10d throws.
c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int ranks, c10::Device device,
                                               std::chrono::milliseconds timeout);

}  // namespace regroup
