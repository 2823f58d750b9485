#include "cli/shell/devices.h"

#include <algorithm>
#include <cstdio>
#include <future>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

extern "C" void end_at_once(int status, void* /*unused*/) {
  std::fflush(nullptr);
  ::_exit(status);
}

void wait_for_ranks(const std::future<std::unique_ptr<ProcessGroup>>& group, const Launch& launch,
                    std::chrono::seconds timeout,
                    const std::function<void(const std::string&)>& say) {
  constexpr std::chrono::milliseconds kPause{20};
  constexpr std::chrono::seconds kUntilSaid{3};
  constexpr std::chrono::seconds kGrace{1};  // c10d's own message says more
  const auto begin = std::chrono::steady_clock::now();
  bool said = false;
  while (group.wait_for(kPause) != std::future_status::ready) {
    check_stop();
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > timeout + kGrace) {
      throw_environment(
          "cannot connect to the other ranks, {} in all, at {} port {}: no answer "
          "within {} s",
          launch.ranks, printable(launch.address), launch.port, timeout.count());
    }
    if (waited > kUntilSaid && !said) {
      said = true;
      say(fmt::format("rank {} waits for the other ranks, {} in all, at {} port {}", launch.rank,
                      launch.ranks, printable(launch.address), launch.port));
    }
  }
}

}  // namespace

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

std::unique_ptr<ProcessGroup> join_process_group(
    const Launch& launch, c10::Device device, std::chrono::seconds timeout,
    const std::function<void(const std::string&)>& say) {
  if (launch.alone()) {
    return nullptr;
  }
  // On a thread of its own, because c10d looks neither at its timeout, if something accepts the
  // connection and is silent, nor at a request to stop.
  using Group = std::unique_ptr<ProcessGroup>;
  std::packaged_task<Group()> connect(
      [=] { return std::make_unique<ProcessGroup>(launch, device, timeout); });
  std::future<Group> group = connect.get_future();
  std::thread(std::move(connect)).detach();
  try {
    wait_for_ranks(group, launch, timeout, say);
  } catch (const Error&) {
    // The thread may go on, and what ends with the program must not end under it.
    ::on_exit(end_at_once, nullptr);
    throw;
  }
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);  // also of this thread
  }
  return group.get();
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

Precision precision_or_fast(std::optional<Precision> chosen, c10::Device device,
                            const Console& console) {
  const Precision precision = chosen.value_or(fast_precision(device));
  warn_of_precision(precision, device, console);
  return precision;
}

void warn_of_precision(Precision precision, c10::Device device, const Console& console) {
  if (precision == Precision::kBf16 && device.is_cpu() && !cpu_multiplies_bf16()) {
    console.note(
        "warning: this CPU has no AVX-512; matrix products in bf16 can take 40 times as long as in "
        "fp32");
  }
  console.notes("note", device_notes(device));
}

}  // namespace regroup
