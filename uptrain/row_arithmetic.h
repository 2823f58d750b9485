// Loops over rows of numbers in bf16 or fp32, computed in fp32 and with the widest vectors that the
// processor at hand has.
#pragma once

#include <bit>
#include <cstdint>

#include <c10/util/BFloat16.h>

/// Compiles a function for several generations of processors; the fitting one is taken at run time.
/// What it calls has to be inlined, or is compiled for the oldest.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define REGROUP_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define REGROUP_VECTORISED
#endif
#define REGROUP_INLINE [[gnu::always_inline]] inline

namespace regroup {

REGROUP_INLINE float wide(float number) { return number; }
REGROUP_INLINE float wide(c10::BFloat16 number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number.x) << 16);
}

/// Rounded to the nearest, ties to even; NaN stays NaN.
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

}  // namespace regroup
