#include "uptrain/model/device_graph.h"

#include <map>
#include <memory>

#include <c10/util/Exception.h>

#if REGROUP_CUDA && REGROUP_CUDA_HEADERS
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace regroup {
namespace {

#if REGROUP_CUDA && REGROUP_CUDA_HEADERS
class CudaGraph {
 public:
  // Recording needs another stream than the default one.
  CudaGraph(c10::Device device, const std::function<void()>& work)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    c10::cuda::device_synchronize();
    work();
    c10::cuda::device_synchronize();
    graph_.capture_begin();
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
    c10::cuda::device_synchronize();
  }

  void replay() {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    graph_.replay();
  }

 private:
  // The stream must not stay in the state of recording.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {  // the error of `work` says more
    }
  }

  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAGraph graph_;
};

GraphRecording record_on_cuda(c10::Device device, const std::function<void()>& work) {
  try {
    const auto graph = std::make_shared<CudaGraph>(device, work);
    return {[graph] { graph->replay(); }, ""};
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& fault) {
    const std::string text = fault.what_without_backtrace();
    return {nullptr, "CUDA could not record a graph: " + text.substr(0, text.find('\n'))};
  }
}
#endif

std::map<c10::DeviceType, GraphRecorder>& recorders() {
  static std::map<c10::DeviceType, GraphRecorder> all = {
#if REGROUP_CUDA && REGROUP_CUDA_HEADERS
      {c10::kCUDA, record_on_cuda},
#endif
  };
  return all;
}

}  // namespace

void set_graph_recorder(c10::DeviceType type, GraphRecorder recorder) {
  recorders()[type] = recorder;
}

GraphRecording record_graph(c10::Device device, const std::function<void()>& work) {
  const auto found = recorders().find(device.type());
  if (found == recorders().end()) {
    return {nullptr, device.is_cuda() ? "built without the headers of CUDA graphs"
                                      : "only GPUs have graphs"};
  }
  return found->second(device, work);
}

}  // namespace regroup
