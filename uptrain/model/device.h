// The device and the precision to compute with.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace regroup {

/// Reads "cpu", "cuda" or "cuda:N". Throws kUsage for anything else and kEnvironment where this
/// machine, or this build of LibTorch, has no such device.
c10::Device parse_device(const std::string& text);

/// Bytes of memory that are free, on the CPU as free_host_memory() has it; none where that is not
/// known.
std::optional<double> available_memory(c10::Device device);

/// The most bytes that were in use at a time so far: on a CPU by this process (VmHWM), else by
/// LibTorch's tensors on the device.
double peak_memory(c10::Device device);

enum class Precision { kFp32, kBf16 };

/// Reads "fp32" or "bf16"; throws kUsage for anything else.
Precision parse_precision(std::string_view text);

/// "fp32" or "bf16".
std::string_view name_of(Precision precision);

/// The type the model computes in.
c10::ScalarType scalar_type_of(Precision precision);

/// Whether LibTorch has fast matrix products in bf16 for this CPU. On x86 they need AVX-512 or AMX.
bool cpu_multiplies_bf16();

/// Lets LibTorch compute with so many CPU threads; 0 leaves its own choice, one per core. Applies
/// to the whole process, so call it before any work.
void set_compute_threads(int threads);

/// Returns when the device has done all it was asked to.
void wait_for(c10::Device device);

/// Calls `work`, turning LibTorch's own exceptions into OutOfMemory where they say so, else (a
/// device that failed) into kEnvironment errors of one line.
void with_torch_errors(const std::function<void()>& work);

}  // namespace regroup
