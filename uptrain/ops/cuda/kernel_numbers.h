// Numbers of the fused kernels, and how threads load them. The same code is compiled by nvcc for
// GPUs and by a C++ compiler for the CPU, where tests run it; it uses no header of CUDA or
// LibTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define REGROUP_KERNEL __host__ __device__ inline
#else
#define REGROUP_KERNEL inline
#endif
#ifdef __CUDA_ARCH__
#define REGROUP_UNROLL _Pragma("unroll")
#else
#define REGROUP_UNROLL
#endif

namespace regroup::kernels {

/// The threads of a block.
constexpr int kBlockThreads = 256;
/// The threads that exchange numbers without shared memory.
constexpr int kWarpThreads = 32;

/// The upper half of an fp32 number.
struct BFloat16 {
  std::uint16_t bits;
};

REGROUP_KERNEL float wide(float number) { return number; }

REGROUP_KERNEL float wide(BFloat16 number) {
  const std::uint32_t bits = static_cast<std::uint32_t>(number.bits) << 16;
  float wide = 0.0F;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

REGROUP_KERNEL void narrow(float number, float& narrowed) { narrowed = number; }

/// Rounds to nearest, ties to even; NaN stays NaN.
REGROUP_KERNEL void narrow(float number, BFloat16& narrowed) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  narrowed.bits = static_cast<std::uint16_t>(number == number ? rounded : quiet);
}

/// Adjacent numbers that a thread loads or stores at once, up to 16 bytes per instruction.
template <typename Number, int kWidth>
struct alignas(sizeof(Number) * kWidth < 16 ? sizeof(Number) * kWidth : 16) Pack {
  Number at[kWidth];
};

template <int kWidth, typename Number>
REGROUP_KERNEL Pack<Number, kWidth> load(const Number* from) {
  return *reinterpret_cast<const Pack<Number, kWidth>*>(from);
}

template <int kWidth, typename Number>
REGROUP_KERNEL void store(Number* to, const Pack<Number, kWidth>& numbers) {
  *reinterpret_cast<Pack<Number, kWidth>*>(to) = numbers;
}

/// The dtype of a call's tensors.
enum class NumberType { kFloat, kBFloat16 };

/// Calls the function with a number of that dtype.
template <typename Function>
auto with_number(NumberType type, const Function& function) {
  return type == NumberType::kFloat ? function(float()) : function(BFloat16());
}

/// A dtype, and how many numbers a thread loads at once.
template <typename NumberOfTag, int kWidthOfTag>
struct Loads {
  using Number = NumberOfTag;
  static constexpr int kWidth = kWidthOfTag;
};

/// Calls the function with Loads of 16 bytes if `aligned`, else of one number.
template <typename Function>
auto with_loads(NumberType type, bool aligned, const Function& function) {
  if (type == NumberType::kFloat) {
    return aligned ? function(Loads<float, 4>()) : function(Loads<float, 1>());
  }
  return aligned ? function(Loads<BFloat16, 8>()) : function(Loads<BFloat16, 1>());
}

/// Whether a pointer, or a count of numbers of that dtype, allows loads of 16 bytes.
inline bool is_aligned(NumberType /*type*/, const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}
inline bool is_aligned(NumberType type, std::int64_t count) {
  return count % (type == NumberType::kFloat ? 4 : 8) == 0;
}

/// Whether all pointers and counts of a call do.
template <typename... Parts>
bool are_aligned(NumberType type, Parts... parts) {
  return (is_aligned(type, parts) && ...);
}

}  // namespace regroup::kernels
