#include "uptrain/rope.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unflatten.h>

#include "formats/rope_frequencies.h"

namespace regroup {

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor frequencies = at::tensor(rope_frequencies(spec, length), wide);
  const at::Tensor angles = at::outer(at::arange(length, wide), frequencies);  // [T, R/2]
  const double factor = spec.scaling.attention_factor;
  return {(angles.cos() * factor).to(options), (angles.sin() * factor).to(options),
          spec.interleaved};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t half = table.cosine.size(-1);
  const at::Tensor turning = x.narrow(-1, 0, 2 * half);
  const at::Tensor pairs = table.interleaved ? turning.unflatten(-1, {half, 2}) : at::Tensor();
  const at::Tensor first = table.interleaved ? pairs.select(-1, 0) : turning.narrow(-1, 0, half);
  const at::Tensor second =
      table.interleaved ? pairs.select(-1, 1) : turning.narrow(-1, half, half);
  const at::Tensor turned_first = first * table.cosine - second * table.sine;
  const at::Tensor turned_second = second * table.cosine + first * table.sine;
  const std::vector<at::Tensor> turned = {turned_first, turned_second};
  std::vector<at::Tensor> parts = {table.interleaved ? at::stack(turned, -1).flatten(-2)
                                                     : at::cat(turned, -1)};
  const std::int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) {
    parts.push_back(x.narrow(-1, 2 * half, rest));
  }
  return rest > 0 ? at::cat(parts, -1) : parts.front();
}

}  // namespace regroup
