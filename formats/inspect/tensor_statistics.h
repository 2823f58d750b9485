// Statistics of a tensor's values, read in parts.
#pragma once

#include <cstdint>
#include <functional>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Over finite elements unless stated otherwise. All zero if the dtype cannot be read.
struct TensorStatistics {
  bool readable = true;
  std::uint64_t elements = 0;  ///< all of them
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  double minimum = 0.0;
  double maximum = 0.0;
  double largest = 0.0;  ///< absolute
  double norm = 0.0;     ///< root of the sum of squares

  bool finite() const { return nan == 0 && infinite == 0; }
};

/// Reads the whole tensor. `progress`, unless it is empty, receives the bytes of each part and may
/// throw. Throws kBadInput if the file has become shorter.
TensorStatistics statistics_of(const Checkpoint& checkpoint, const TensorInfo& tensor,
                               const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace regroup
