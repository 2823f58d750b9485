#include "uptrain/model/device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <sys/resource.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
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
  if (device.is_cuda()) {
    return prepare_cuda(device);
  }
  if (device.is_cpu() && at::globalContext().hasCUDA()) {
    return {"this machine has a GPU, which --device cuda uses"};
  }
  if (device.is_cpu() && path_exists("/dev/nvidiactl") && !at::detail::getCUDAHooks().hasCUDART()) {
    return {
        "this machine has a GPU, which needs LibTorch with CUDA: REGROUP_TORCH=cuda scripts/setup "
        "installs it, then build again"};
  }
  return {};
}

namespace {

// Free and whole, in bytes.
std::optional<std::pair<double, double>> device_memory(c10::Device device) {
  try {
    return c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  } catch (const c10::Error&) {
    return std::nullopt;  // some kinds of devices do not report it
  }
}

}  // namespace

std::optional<double> available_memory(c10::Device device) {
  if (device.is_cpu()) {
    return free_host_memory();
  }
  const auto memory = device_memory(device);
  return memory ? std::optional(memory->first) : std::nullopt;
}

std::optional<double> whole_memory(c10::Device device) {
  if (device.is_cpu()) {
    return bytes_in("/proc/meminfo", "MemTotal:");
  }
  const auto memory = device_memory(device);
  return memory ? std::optional(memory->second) : std::nullopt;
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

// Without instructions for bf16, oneDNN computes it by those for fp32: SmolLM2-135M is evaluated at
// 540 tokens/s in place of 640.
Precision fast_precision(c10::Device device) {
#ifdef __x86_64__
  const bool cpu_is_faster = __builtin_cpu_supports("avx512bf16") != 0;
#else
  const bool cpu_is_faster = true;
#endif
  return device.is_cpu() && !cpu_is_faster ? Precision::kFp32 : Precision::kBf16;
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

namespace {

namespace fs = std::filesystem;

// The names of the same files in the two versions of control groups.
struct GroupFiles {
  const char *limit, *used, *reclaimable;
};
constexpr GroupFiles kFirst{"memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
constexpr GroupFiles kSecond{"memory.max", "memory.current", "inactive_file"};

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// The number in a file that holds one number or the word "max". None for "max".
std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double number = 0.0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The number after the word `key` at the beginning of a line.
std::optional<double> number_after(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    double number = 0.0;
    if (words >> first >> number && first == key) {
      return number;
    }
  }
  return std::nullopt;
}

// Inactive file pages count as free: they are reclaimed before an allocation fails.
std::optional<double> free_in_group(const fs::path& group, const GroupFiles& files) {
  const auto limit = number_in(group / files.limit);
  const auto used = number_in(group / files.used);
  if (!limit || !used) {
    return std::nullopt;
  }
  const double reclaimable = number_after(group / "memory.stat", files.reclaimable).value_or(0.0);
  return std::max(0.0, *limit - std::max(0.0, *used - reclaimable));
}

// The least free memory of a group and of the groups around it, up to `mount`.
std::optional<double> free_up_from(const fs::path& mount, const std::string& group,
                                   const GroupFiles& files) {
  std::optional<double> room;
  fs::path inside = fs::path(group).relative_path();
  while (true) {
    room = least(room, free_in_group(mount / inside, files));
    if (inside.empty()) {
      return room;
    }
    inside = inside.parent_path();
  }
}

std::optional<double> free_under_limit() {
  rlimit limit{};
  const auto used = bytes_in("/proc/self/status", "VmSize:");
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !used) {
    return std::nullopt;
  }
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - *used);
}

}  // namespace

std::optional<double> bytes_in(const fs::path& file, std::string_view key) {
  constexpr double kKibibyte = 1024.0;
  const auto kibibytes = number_after(file, key);
  return kibibytes ? std::optional(*kibibytes * kKibibyte) : std::nullopt;
}

std::optional<double> free_in_control_groups(const fs::path& membership, const fs::path& mount) {
  std::optional<double> room;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "4:memory:/group", "0::/group"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      room = least(room, free_up_from(mount, group, kSecond));
    } else if (controllers.find(",memory,") != std::string::npos) {
      room = least(room, free_up_from(mount / "memory", group, kFirst));
    }
  }
  return room;
}

std::optional<double> free_host_memory() {
  return least(least(bytes_in("/proc/meminfo", "MemAvailable:"),
                     free_in_control_groups("/proc/self/cgroup", "/sys/fs/cgroup")),
               free_under_limit());
}

namespace {

// Offsets of tensors in the transfer: a multiple of any element's size.
constexpr std::int64_t kAlignment = 16;

std::int64_t room_for(const at::Tensor& tensor) {
  const auto bytes = tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, at::Device device) {
  if (device.is_cpu()) {
    return tensors;
  }
  std::int64_t size = 0;
  for (const at::Tensor& tensor : tensors) {
    size += room_for(tensor);
  }
  at::Tensor packed = at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* to = packed.mutable_data_ptr<std::uint8_t>();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) {
      const at::Tensor dense = tensor.contiguous();
      std::memcpy(to, dense.const_data_ptr(), dense.nbytes());
      to += room_for(tensor);
    }
  }
  const at::Tensor there = packed.to(device, at::kByte, /*non_blocking=*/true);
  std::vector<at::Tensor> results;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    results.push_back(tensor.defined()
                          ? there.narrow(0, offset, static_cast<std::int64_t>(tensor.nbytes()))
                                .view(tensor.scalar_type())
                                .view(tensor.sizes())
                          : tensor);
    offset += room_for(tensor);
  }
  return results;
}

}  // namespace regroup
