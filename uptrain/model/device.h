// The device and the precision to compute with, its memory and the host's, and what is copied to
// it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace regroup {

/// Reads "cpu", "cuda" or "cuda:N". Throws kUsage for anything else and kEnvironment where this
/// machine, or this build of LibTorch, has no such device. Initialises CUDA for a CUDA device, and
/// checks its fused kernels when the process first does so.
c10::Device parse_device(const std::string& text);

/// What the user should know of a device from parse_device(), a line each: fused kernels that are
/// not used, and why; for the CPU, a GPU that nothing uses.
std::vector<std::string> device_notes(c10::Device device);

/// Free memory in bytes, on the CPU that of free_host_memory(); none if unknown.
std::optional<double> available_memory(c10::Device device);

/// The whole memory of a device, or of the machine on a CPU, in bytes; none if unknown.
std::optional<double> whole_memory(c10::Device device);

/// Peak memory in bytes: of this process on a CPU (VmHWM), else of LibTorch's tensors on the
/// device.
double peak_memory(c10::Device device);

enum class Precision { kFp32, kBf16 };

/// Reads "fp32" or "bf16"; throws kUsage for anything else.
Precision parse_precision(std::string_view text);

/// "fp32" or "bf16".
std::string_view name_of(Precision precision);

/// The type the model computes in.
c10::ScalarType scalar_type_of(Precision precision);

/// Whether LibTorch has fast matrix products in bf16 for this CPU. On x86 they need AVX-512.
bool cpu_multiplies_bf16();

/// bf16 where the device multiplies it fast, otherwise fp32.
Precision fast_precision(c10::Device device);

/// Sets the number of LibTorch's CPU threads; 0 keeps its default, one per core. Applies to the
/// whole process, so call it before any work.
void set_compute_threads(int threads);

/// Waits for all work queued on the device.
void wait_for(c10::Device device);

/// Calls `work` and converts LibTorch's exceptions: out of memory to OutOfMemory, others (a device
/// failure) to one-line kEnvironment errors.
void with_torch_errors(const std::function<void()>& work);

/// Bytes in a line of /proc such as "MemAvailable:   12345678 kB"; none if the file or the line is
/// missing.
std::optional<double> bytes_in(const std::filesystem::path& file, std::string_view key);

/// Linux's estimate of available memory (MemAvailable), or less if a control group (container) or
/// `ulimit -v` allows less; none if unknown.
std::optional<double> free_host_memory();

/// Memory that control groups still allow, including the parents of this process's group.
/// `membership` is /proc/self/cgroup, `mount` the mount point. None if no group has a limit.
std::optional<double> free_in_control_groups(const std::filesystem::path& membership,
                                             const std::filesystem::path& mount);

/// Copies tensors of the host to `device` in one transfer from pinned memory; the host
/// does not wait for it. Undefined tensors stay undefined. For the CPU they are returned as they
/// are.
std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, at::Device device);

}  // namespace regroup
