#include "uptrain/model/device.h"

#include <regex>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/host_memory.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/kernel_check.h"

namespace regroup {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// LibTorch has a separate out-of-memory exception only for devices. On a CPU, the text must be
// parsed.
bool says_out_of_memory(const c10::Error& fault) {
  const std::string_view text = fault.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&fault) != nullptr ||
         text.find("can't allocate memory") != std::string_view::npos ||
         text.find("out of memory") != std::string_view::npos;
}

// "16.0 GiB more could not be allocated" if the text contains the number of bytes, else an empty
// text.
std::string shortage_in(const c10::Error& fault) {
  static const std::regex kAsked("tried to allocate ([0-9]{1,19}) bytes");
  static const std::regex kAskedOfDevice("Tried to allocate ([0-9.]+ [KMGT]iB)");
  const std::string text = fault.what_without_backtrace();
  std::smatch match;
  std::string amount;
  if (std::regex_search(text, match, kAsked)) {
    amount = fmt::format("{:.1f} GiB", std::stod(match[1].str()) / (1U << 30));
  } else if (std::regex_search(text, match, kAskedOfDevice)) {
    amount = match[1].str();
  }
  return amount.empty() ? "" : amount + " more could not be allocated";
}

// LibTorch prefers cuDNN's attention on Hopper and Blackwell. It gave NaN gradients under masks
// (pytorch/pytorch issue 196678), it makes a new plan for each length of a cache, and it does not
// split one query's keys over the GPU. Only attention without a mask turns it on
// (ops/attention.cpp).
//
// Fused kernels are used once they agree with LibTorch's operators on the first GPU that is asked
// for. Returns what the user should know.
const std::vector<std::string>& prepare_cuda(c10::Device device) {
  static const std::vector<std::string> notes = [&]() -> std::vector<std::string> {
    at::globalContext().setSDPUseCuDNN(false);
    at::globalContext().lazyInitDevice(c10::kCUDA);  // CUDA's allocator cannot be asked before
    if (compiled_cuda_kernels() == nullptr) {
      return {
          "built without fused CUDA kernels, training is slower; REGROUP_TORCH=cuda "
          "scripts/setup installs a compiler for them, then build again"};
    }
    set_device_kernels(c10::kCUDA, compiled_cuda_kernels());
    return check_device_kernels(device);
  }();
  return notes;
}

}  // namespace

c10::Device parse_device(const std::string& text) {
  if (text == "cpu") {
    return c10::Device(c10::kCPU);
  }
  static const std::regex kCuda("cuda(:(\\d{1,3}))?");
  std::smatch match;
  if (!std::regex_match(text, match, kCuda)) {
    throw_usage("device \"{}\" is unknown, allowed are cpu, cuda and cuda:N", printable(text));
  }
  if (!at::globalContext().hasCUDA()) {
    if (!at::detail::getCUDAHooks().hasCUDART()) {
      throw_environment(
          "device {}: this LibTorch was built without CUDA; REGROUP_TORCH=cuda "
          "scripts/setup installs one with it, then build again",
          text);
    }
    throw_environment("device {}: no CUDA device was found; nvidia-smi tells what the driver sees",
                      text);
  }
  const int index = match[2].matched ? std::stoi(match[2].str()) : 0;
  const int count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  if (index >= count) {
    throw_environment("device {}: this machine has {} CUDA devices, counted from 0", text, count);
  }
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  prepare_cuda(device);
  return device;
}

std::vector<std::string> device_notes(c10::Device device) {
  return device.is_cuda() ? prepare_cuda(device) : std::vector<std::string>();
}

std::optional<double> available_memory(c10::Device device) {
  if (device.is_cpu()) {
    return free_host_memory();
  }
  try {
    return static_cast<double>(
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;  // some kinds of devices do not report it
  }
}

double peak_memory(c10::Device device) {
  if (device.is_cpu()) {
    return bytes_in("/proc/self/status", "VmHWM:").value_or(0.0);
  }
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes.at(kAll).peak);
}

Precision parse_precision(std::string_view text) {
  if (text == "fp32") {
    return Precision::kFp32;
  }
  if (text == "bf16") {
    return Precision::kBf16;
  }
  throw_usage("precision \"{}\" is unknown, allowed are fp32 and bf16", printable(text));
}

std::string_view name_of(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : "fp32";
}

c10::ScalarType scalar_type_of(Precision precision) {
  return precision == Precision::kBf16 ? c10::kBFloat16 : c10::kFloat;
}

bool cpu_multiplies_bf16() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bw") != 0;
#else
  return true;
#endif
}

Precision fast_precision(c10::Device device) {
  return device.is_cpu() && !cpu_multiplies_bf16() ? Precision::kFp32 : Precision::kBf16;
}

void set_compute_threads(int threads) {
  if (threads > 0) {
    at::set_num_threads(threads);
  }
}

void wait_for(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

void with_torch_errors(const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::Error& fault) {
    if (says_out_of_memory(fault)) {
      throw OutOfMemory(shortage_in(fault));
    }
    throw_environment("LibTorch: {}", printable(first_line(fault.what_without_backtrace()), 400));
  }
}

}  // namespace regroup
