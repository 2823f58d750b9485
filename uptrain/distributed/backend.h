// The engines that move tensors between ranks: c10d's, NCCL for GPUs and Gloo for CPUs.
#pragma once

#include <chrono>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace regroup {

/// Connects rank number `rank` of `ranks` with all others, which do the same, by way of `store`;
/// for tensors on `device`. An operation that takes longer than `timeout` fails. Throws kUsage for
/// a GPU where this build has no NCCL, and what c10d throws.
c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int ranks, c10::Device device,
                                               std::chrono::milliseconds timeout);

}  // namespace regroup
