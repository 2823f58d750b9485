#include "cli/process/distributed_launch.h"

#include <algorithm>
#include <thread>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "formats/base/error.h"
#include "uptrain/model/device.h"

namespace regroup {

c10::Device device_of_rank(const std::string& text, const Launch& launch) {
  // parse_device() computes on the device, so it is not asked for another rank's. Without CUDA it
  // says what is missing.
  if (launch.alone() || text != "cuda" || !at::globalContext().hasCUDA()) {
    return parse_device(text);
  }
  // If the launcher makes one GPU visible to each rank, its number is 0 for all ranks.
  const int visible = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  return parse_device(visible == 1 ? text : "cuda:" + std::to_string(launch.local_rank));
}

int threads_of_rank(int requested, const Launch& launch) {
  if (requested > 0 || launch.alone() || variable_of_process("OMP_NUM_THREADS")) {
    return requested;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / launch.local_ranks);
}

std::unique_ptr<ProcessGroup> join_process_group(const Launch& launch, c10::Device device,
                                                 std::chrono::seconds timeout) {
  return launch.alone() ? nullptr : std::make_unique<ProcessGroup>(launch, device, timeout);
}

void with_rank_named(const Launch& launch, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& fault) {
    if (launch.alone()) {
      throw;
    }
    throw Error(fault.kind(), fmt::format("rank {}: {}", launch.rank, fault.what()));
  }
}

}  // namespace regroup
