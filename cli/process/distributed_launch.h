// A command that runs as several processes, one for each device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "uptrain/distributed/launch.h"
#include "uptrain/distributed/process_group.h"

namespace regroup {

/// The device that `text` (--device) means for a rank: "cuda" is the GPU of its place on the
/// machine, or the only one it sees. Throws as parse_device() does.
c10::Device device_of_rank(const std::string& text, const Launch& launch);

/// The compute threads of a rank where none are asked for: its part of the machine's cores. 0
/// leaves the choice to LibTorch: for a process that is alone, and where OMP_NUM_THREADS is set.
int threads_of_rank(int asked, const Launch& launch);

/// Meets the other ranks; null for a process that is alone.
std::unique_ptr<ProcessGroup> join_process_group(const Launch& launch, c10::Device device,
                                                 std::chrono::seconds timeout);

/// Calls `work`; errors of one of several ranks say which one speaks.
void with_rank_named(const Launch& launch, const std::function<void()>& work);

}  // namespace regroup
