#include "uptrain/distributed/backend.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "formats/base/error.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

// LibTorch with CUDA contains NCCL. Its headers, and the CUDA headers that c10d includes, are in
// separate packages.
#if REGROUP_CUDA && __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>) && \
    __has_include(<crt/host_defines.h>) && __has_include(<nv/target>) && \
    __has_include(<cusparse.h>) && __has_include(<cusolverDn.h>)
#define REGROUP_NCCL 1
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#define REGROUP_NCCL 0
#endif

namespace regroup {
namespace {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store, [[maybe_unused]] int rank,
    [[maybe_unused]] int ranks, [[maybe_unused]] c10::Device device,
    [[maybe_unused]] std::chrono::milliseconds timeout) {
#if REGROUP_NCCL
  // With this, a rank that waits for a lost one gets an exception after the timeout and ends in one
  // line. Otherwise c10d starts a watchdog, which throws on a thread of its own, and a heartbeat
  // monitor, which kills the process after eight minutes: both end in SIGABRT and a stack trace.
  // TORCH_NCCL_ASYNC_ERROR_HANDLING and TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC are settings of these two.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*replace=*/1);
  c10::cuda::set_device(device.index());
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, ranks, std::move(options));
#else
  throw_usage(
      "device {}: several ranks on GPUs need NCCL, which this build lacks: headers of NCCL or CUDA "
      "were not found next to LibTorch",
      device.str());
#endif
}

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int ranks, c10::Device /*device*/,
                                                    std::chrono::milliseconds timeout) {
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      store, rank, ranks, c10d::ProcessGroupGloo::Options::create_default(timeout));
}

std::map<c10::DeviceType, BackendFactory>& factories() {
  static std::map<c10::DeviceType, BackendFactory> all = {{c10::kCPU, make_gloo_backend},
                                                          {c10::kCUDA, make_nccl_backend}};
  return all;
}

}  // namespace

void register_backend(c10::DeviceType type, BackendFactory factory) {
  factories()[type] = std::move(factory);
}

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int ranks, c10::Device device,
                                               std::chrono::milliseconds timeout) {
  const auto found = factories().find(device.type());
  if (found == factories().end()) {
    throw_usage("device {}: several ranks train on CPUs and CUDA devices only", device.str());
  }
  return found->second(store, rank, ranks, device, timeout);
}

}  // namespace regroup
