// Runs the fused kernels of GPUs (uptrain/ops/cuda/) on the host: the same code for each thread, in
// the order of the grid. Parts of a row are combined in the order of the GPU's warps.
//
// What it cannot show: races between threads, except those that change with the threads' order, and
// errors of the exchange between threads (cuda_launcher.cuh).
#pragma once

#include <array>
#include <cstdint>

#include "uptrain/ops/cuda/adamw_kernel.h"
#include "uptrain/ops/cuda/cross_entropy_kernel.h"
#include "uptrain/ops/cuda/gated_kernel.h"
#include "uptrain/ops/cuda/norm_kernel.h"
#include "uptrain/ops/cuda/rotation_kernel.h"

namespace regroup {

class OnHost {
 public:
  /// `backwards`: the last thread of a block first.
  explicit OnHost(bool backwards = false) : backwards_(backwards) {}

  template <typename Work>
  const char* each(const Work& work) const {
    for (std::int64_t block = 0; block < work.blocks(); ++block) {
      for_each_thread(kernels::kBlockThreads, [&](int thread) { work(block, thread); });
    }
    return nullptr;
  }

  template <int kThreads, typename Work>
  const char* rows(const Work& work) const {
    constexpr std::int64_t kGroups = kernels::kBlockThreads / kThreads;  // of a block
    const std::int64_t groups = (work.groups() + kGroups - 1) / kGroups * kGroups;
    for (std::int64_t group = 0; group < groups; ++group) {
      const kernels::RowRange range = kernels::rows_of_group(work, group);
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        std::array<typename Work::Part, kThreads> parts;
        for_each_thread(kThreads, [&](int thread) {
          parts[static_cast<std::size_t>(thread)] = work.gather(row, {thread, kThreads});
        });
        const auto total = combined<Work>(parts);
        for_each_thread(kThreads, [&](int thread) { work.finish(row, {thread, kThreads}, total); });
      }
    }
    return nullptr;
  }

 private:
  template <typename Function>
  void for_each_thread(int threads, const Function& function) const {
    for (int i = 0; i < threads; ++i) {
      function(backwards_ ? threads - 1 - i : i);
    }
  }

  // combine_row() of cuda_launcher.cuh.
  template <typename Work, std::size_t kThreads>
  static auto combined(std::array<typename Work::Part, kThreads>& parts) {
    constexpr std::size_t kWarp = kernels::kWarpThreads;
    for (std::size_t warp = 0; warp < kThreads; warp += kWarp) {
      for (std::size_t step = kWarp / 2; step > 0; step /= 2) {
        for (std::size_t i = warp; i < warp + step; ++i) {
          parts[i] = Work::combine(parts[i], parts[i + step]);
        }
      }
    }
    auto total = parts[0];
    for (std::size_t warp = kWarp; warp < kThreads; warp += kWarp) {
      total = Work::combine(total, parts[warp]);
    }
    return total;
  }

  bool backwards_;
};

}  // namespace regroup
