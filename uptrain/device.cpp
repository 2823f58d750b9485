#include "uptrain/device.h"

#include <fstream>
#include <regex>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Bytes that a file of /proc gives in a line such as "MemAvailable:   12345678 kB".
std::optional<double> bytes_in(const char* path, std::string_view wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    double kibibytes = 0.0;
    if (words >> key >> kibibytes && key == wanted) {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
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
    throw_environment("device {}: no CUDA device was found, or LibTorch was built without CUDA",
                      text);
  }
  const int index = match[2].matched ? std::stoi(match[2].str()) : 0;
  const int count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  if (index >= count) {
    throw_environment("device {}: this machine has {} CUDA devices, counted from 0", text, count);
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::optional<double> available_memory(c10::Device device) {
  if (device.is_cpu()) {
    return bytes_in("/proc/meminfo", "MemAvailable:");
  }
  try {
    return static_cast<double>(
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  } catch (const c10::Error&) {
    return std::nullopt;  // not every kind of device tells
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
    throw_environment("LibTorch: {}", printable(first_line(fault.what_without_backtrace()), 400));
  }
}

}  // namespace regroup
