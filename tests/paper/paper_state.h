// The counters behind PaperCounts, shared by the files of this folder.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "tests/paper/paper_device.h"
#include "uptrain/model/device_graph.h"

namespace regroup {

/// Counts what happens on the device. Safe for several threads, since autograd runs the backward
/// pass on a separate one.
class PaperState {
 public:
  static PaperState& get();

  void launch(std::string_view name, std::int64_t bytes);
  void wait(std::string_view cause);
  void upload(bool waits);
  void download(bool waits);
  void attention_by_fused_kernel();
  void attention_by_math(const std::string& reason);

  PaperCounts counts();
  void reset();

  std::atomic<bool> hollow = false;  ///< see set_paper_hollow()

 private:
  std::mutex mutex_;
  PaperCounts counts_;
};

/// Registers the operators' kernels (paper_kernels.cpp).
void register_paper_kernels();

/// Records and repeats work as CUDA's graphs do (paper_graph.cpp).
GraphRecording record_on_paper(c10::Device device, const std::function<void()>& work);

/// The bytes of a tensor of the device as a tensor of the host.
at::Tensor on_host(const at::Tensor& paper);

/// Whether `data` is pinned host memory of this device.
bool is_pinned_for_paper(const void* data);

}  // namespace regroup
