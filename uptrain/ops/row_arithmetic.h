// Loops over rows in bf16 or fp32, computed in fp32 with the widest vectors of the processor.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <c10/util/BFloat16.h>

#include "uptrain/ops/cuda/kernel_numbers.h"

/// Compiles a function for several generations of processors; dispatches at run time. Functions it
/// calls must be inlined, or they are compiled for the oldest.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define REGROUP_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define REGROUP_VECTORISED
#endif
#define REGROUP_INLINE [[gnu::always_inline]] inline

namespace regroup {

REGROUP_INLINE float wide(float number) { return number; }
REGROUP_INLINE float wide(c10::BFloat16 number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number.x) << 16);
}

/// Rounds to nearest, ties to even; NaN stays NaN.
template <typename Number>
REGROUP_INLINE Number narrow(float number) {
  if constexpr (sizeof(Number) == sizeof(float)) {
    return number;
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return Number(static_cast<std::uint16_t>(number == number ? rounded : quiet),
                  Number::from_bits());
  }
}

/// Calls the function with a number of that dtype.
template <typename Function>
void with_row_number(kernels::NumberType type, const Function& function) {
  type == kernels::NumberType::kFloat ? function(float()) : function(c10::BFloat16());
}

/// e^x within two units in the last place; 0 below e^-87, infinite above e^88; NaN stays NaN.
/// The polynomial is that of Cephes' expf, https://netlib.org/cephes
REGROUP_INLINE float exponential(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the lowest bits.
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float whole = shifted - 12582912.0F;
  const float rest = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  sum = sum * rest * rest + rest + 1.0F;
  const auto power = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;
  const float value = sum * std::bit_cast<float>(power);
  const float bounded = x > 88.0F ? std::numeric_limits<float>::infinity() : value;
  return x < -87.0F ? 0.0F : bounded;
}

}  // namespace regroup
