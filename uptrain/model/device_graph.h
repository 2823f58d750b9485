// A sequence of launches that a device repeats by itself: a CUDA graph. Small models and small
// batches decode faster with it, since launching takes the host longer than computing takes the
// GPU.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace regroup {

/// A graph, or why there is none.
struct GraphRecording {
  std::function<void()> replay;  ///< queues all launches again, on the same memory; or null
  std::string obstacle;
};

/// Records what `work` launches. It is called twice: once so that all that is made at first use
/// exists, once to record. What it uses must outlive the graph. In the second call it must not wait
/// for the device, nor copy between host and device. What LibTorch refuses to record is an
/// obstacle, not an exception, except for a lack of memory.
GraphRecording record_graph(c10::Device device, const std::function<void()>& work);

using GraphRecorder = GraphRecording (*)(c10::Device device, const std::function<void()>& work);

/// Sets how devices of a type record. CUDA devices record without it if the build has CUDA's
/// headers. For tests; not while another thread records.
void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder);

}  // namespace regroup
