#include "uptrain/ops/sinusoids.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>

namespace regroup {

at::Tensor sinusoids(std::int64_t first, std::int64_t length, std::int64_t width,
                     std::int64_t steps, const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const double rate = -std::log(10000.0) / static_cast<double>(steps);
  const at::Tensor frequencies = (at::arange(width / 2, wide) * rate).exp();
  const at::Tensor angles = at::outer(at::arange(first, first + length, wide), frequencies);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options);
}

}  // namespace regroup
