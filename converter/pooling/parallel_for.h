// Work on the groups of a layer, in files compiled with OpenMP: at::parallel_for is a serial loop
// in others.
#pragma once

#ifndef _OPENMP
#error "list this file among those that CMakeLists.txt compiles with OpenMP"
#endif

#include <cstdint>

#include <ATen/Parallel.h>
#include <c10/core/Device.h>

namespace regroup {

/// Calls `work(i)` for each i below `count`: on a CPU on all cores, elsewhere one after the other.
template <typename Work>
void for_each_group(c10::Device device, std::int64_t count, const Work& work) {
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      work(i);
    }
  };
  if (device.is_cpu()) {
    at::parallel_for(0, count, 1, run);
  } else {
    run(0, count);
  }
}

}  // namespace regroup
