#include "uptrain/ops/rope.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unflatten.h>

#include "formats/spec/rope_frequencies.h"
#include "uptrain/ops/fused_rotation.h"

namespace regroup {

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options) {
  return make_rope_table(spec, 0, length, length, options);
}

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t first, std::int64_t length,
                          std::int64_t context, const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor frequencies = at::tensor(rope_frequencies(spec, context), wide);
  const at::Tensor positions = at::arange(first, first + length, wide);
  const at::Tensor angles = at::outer(positions, frequencies);  // [T, R/2]
  const double factor = spec.scaling.attention_factor;
  return {(angles.cos() * factor).to(options), (angles.sin() * factor).to(options),
          spec.interleaved};
}

RopeTable RopePositions::at(std::int64_t first, std::int64_t length) {
  constexpr std::int64_t kAhead = 1024;
  if (first < begin_ || first + length > end_) {
    begin_ = first;
    end_ = first + length + kAhead;
    table_ = make_rope_table(spec_, begin_, end_ - begin_, context_, options_);
  }
  return {table_.cosine.narrow(0, first - begin_, length),
          table_.sine.narrow(0, first - begin_, length), table_.interleaved};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  if (can_fuse_rotation(x, table)) {
    return fused_rotation(x, table);
  }
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
