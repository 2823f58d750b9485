// A device for tests whose memory is the host's: LibTorch's PrivateUse1 backend, under the name
// "paper". Code that asks whether a tensor is on the CPU takes the branch that CUDA takes.
// Operators run LibTorch's CPU kernels on the same bytes, so results can be compared with the
// CPU's. What would cost time on a GPU, or fail there, is counted or thrown:
//
// - an operator that gets tensors of the host and of the device throws, except for scalars;
// - kernel launches, copies in both directions and waits of the host are counted;
// - attention asks CUDA's rules which kernel would run: a fused one, whose memory is linear, or the
//   product of all queries and keys.
//
// What it cannot show: speed, bf16 results of CUDA's own kernels, races between streams, and the
// memory that these kernels take inside (padded masks, gradients of repeated heads).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace regroup {

/// The device, registered with LibTorch at the first call.
c10::Device paper_device();

/// What happened on the device since reset_paper_counts().
struct PaperCounts {
  std::int64_t launches = 0;   ///< operators that computed something; views are none
  std::int64_t bytes = 0;      ///< read and written by them, if each operand is read once
  std::int64_t uploads = 0;    ///< copies from the host
  std::int64_t downloads = 0;  ///< copies to the host
  std::int64_t waits = 0;      ///< of the host for the device
  std::map<std::string, std::int64_t> operators;  ///< launches by operator
  std::map<std::string, std::int64_t> waiting;    ///< waits by cause
  std::vector<std::string> math_attentions;  ///< calls of attention that no fused kernel supports
  std::int64_t fused_attentions = 0;
};

/// The counts of all threads.
PaperCounts paper_counts();

/// Sets all counts to 0. Peak memory is reset through LibTorch's allocator.
void reset_paper_counts();

/// Whether the device only counts: operators give results of their shapes, without numbers, and
/// memory is never touched. For models that are larger than this machine. What is copied to the
/// host is 0.
void set_paper_hollow(bool hollow);

/// Limits the memory of the device to `bytes`; 0 restores the default of 16 GiB.
void set_paper_memory(std::int64_t bytes);

}  // namespace regroup
