// How many elements a shape has.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// 1 for an empty shape. Does not check for overflow, as tensor_bytes() does.
inline std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace regroup
