#include "uptrain/rope.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

namespace regroup {

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponents =
      at::arange(0, spec.rotary_dim, 2, wide) * (-1.0 / static_cast<double>(spec.rotary_dim));
  const at::Tensor frequencies = at::pow(spec.theta, exponents);               // [R/2]
  const at::Tensor angles = at::outer(at::arange(length, wide), frequencies);  // [T, R/2]
  return {angles.cos().to(options), angles.sin().to(options)};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t half = table.cosine.size(-1);
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  std::vector<at::Tensor> parts = {first * table.cosine - second * table.sine,
                                   second * table.cosine + first * table.sine};
  const std::int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) {
    parts.push_back(x.narrow(-1, 2 * half, rest));
  }
  return at::cat(parts, -1);
}

}  // namespace regroup
