// Launches the kernels of this folder on a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include "uptrain/ops/cuda/row_kernel.h"

namespace regroup::kernels {

template <typename Work>
__global__ void __launch_bounds__(kBlockThreads) each_kernel(const Work work) {
  work(blockIdx.x, static_cast<int>(threadIdx.x));
}

/// The value of the thread `step` places later in the warp.
template <typename Part>
__device__ Part later(Part part, int step) {
  constexpr int kWords = sizeof(Part) / sizeof(unsigned);
  unsigned words[kWords];
  memcpy(words, &part, sizeof(part));
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = __shfl_down_sync(~0U, words[i], step);
  }
  memcpy(&part, words, sizeof(part));
  return part;
}

/// The parts of all threads of a warp, combined: in its first thread.
template <typename Work>
__device__ typename Work::Part combine_warp(typename Work::Part part) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    part = Work::combine(part, later(part, step));
  }
  return part;
}

/// The parts of all threads of a row, combined: in all of them. Warps are combined in their order.
template <typename Work, int kThreads>
__device__ typename Work::Part combine_row(typename Work::Part part) {
  constexpr int kWarps = kBlockThreads / kWarpThreads;
  __shared__ typename Work::Part parts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  part = combine_warp<Work>(part);
  if (threadIdx.x % kWarpThreads == 0) {
    parts[warp] = part;
  }
  if constexpr (kThreads == kWarpThreads) {
    __syncwarp();
    part = parts[warp];
    __syncwarp();
  } else {
    __syncthreads();
    part = parts[0];
    for (int i = 1; i < kWarps; ++i) {
      part = Work::combine(part, parts[i]);
    }
    __syncthreads();
  }
  return part;
}

template <typename Work, int kThreads>
__global__ void __launch_bounds__(kBlockThreads) rows_kernel(const Work work) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t group =
      static_cast<std::int64_t>(blockIdx.x) * (kBlockThreads / kThreads) + thread / kThreads;
  const Team team = {thread % kThreads, kThreads};
  const RowRange range = rows_of_group(work, group);
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    work.finish(row, team, combine_row<Work, kThreads>(work.gather(row, team)));
  }
}

/// The launcher that the kernels' functions take.
class OnStream {
 public:
  explicit OnStream(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  /// Calls work(block, thread) for all threads of work.blocks() blocks.
  template <typename Work>
  const char* each(const Work& work) const {
    return check(work.blocks(), [&](unsigned blocks) {
      each_kernel<<<blocks, kBlockThreads, 0, stream_>>>(work);
    });
  }

  /// Runs a row kernel with kThreads threads a row.
  template <int kThreads, typename Work>
  const char* rows(const Work& work) const {
    constexpr std::int64_t kGroups = kBlockThreads / kThreads;  // of a block
    return check((work.groups() - 1) / kGroups + 1, [&](unsigned blocks) {
      rows_kernel<Work, kThreads><<<blocks, kBlockThreads, 0, stream_>>>(work);
    });
  }

 private:
  template <typename Launch>
  static const char* check(std::int64_t blocks, const Launch& launch) {
    constexpr std::int64_t kMostBlocks = 0x7FFFFFFF;
    if (blocks < 1 || blocks > kMostBlocks) {
      return "too many blocks";
    }
    launch(static_cast<unsigned>(blocks));
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }

  cudaStream_t stream_;
};

}  // namespace regroup::kernels
