#include "uptrain/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "formats/spec/alibi.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {

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
  const auto half_of_pairs = [&](std::int64_t which) {
    return table.interleaved ? turning.unflatten(-1, {half, 2}).select(-1, which)
                             : turning.narrow(-1, which * half, half);
  };
  const at::Tensor first = half_of_pairs(0), second = half_of_pairs(1);
  const std::vector<at::Tensor> turned = {first * table.cosine - second * table.sine,
                                          second * table.cosine + first * table.sine};
  const at::Tensor whole =
      table.interleaved ? at::stack(turned, -1).flatten(-2) : at::cat(turned, -1);
  const std::int64_t rest = x.size(-1) - 2 * half;
  return rest > 0 ? at::cat({whole, x.narrow(-1, 2 * half, rest)}, -1) : whole;
}

at::Tensor sinusoids(std::int64_t first, std::int64_t length, std::int64_t width,
                     std::int64_t steps, const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const double rate = -std::log(10000.0) / static_cast<double>(steps);
  const at::Tensor frequencies = (at::arange(width / 2, wide) * rate).exp();
  const at::Tensor angles = at::outer(at::arange(first, first + length, wide), frequencies);
  return at::cat({angles.sin(), angles.cos()}, 1).to(options);
}

std::int64_t relative_bucket(const RelativeBiasSpec& spec, std::int64_t distance, bool causal) {
  const std::int64_t buckets = causal ? spec.buckets : spec.buckets / 2;
  const std::int64_t first = !causal && distance > 0 ? buckets : 0;
  const std::int64_t away = causal ? std::max<std::int64_t>(0, -distance) : std::abs(distance);
  const std::int64_t exact = buckets / 2;
  if (away < exact) {
    return first + away;
  }
  const double octaves =
      std::log(static_cast<double>(away) / static_cast<double>(exact)) /
      std::log(static_cast<double>(spec.max_distance) / static_cast<double>(exact));
  const auto beyond = static_cast<std::int64_t>(octaves * static_cast<double>(buckets - exact));
  return first + std::min(exact + beyond, buckets - 1);
}

at::Tensor RelativeBuckets::of(std::int64_t keys, std::int64_t queries, bool causal,
                               at::Device device) {
  constexpr std::int64_t kAhead = 1024;
  at::Tensor& known = known_.at(causal ? 1 : 0);
  if (!known.defined() || known.size(0) / 2 < std::max(keys, queries) || known.device() != device) {
    const std::int64_t reach = std::max(keys, queries) + kAhead;
    at::Tensor buckets = at::empty({2 * reach + 1}, at::kLong);
    auto* bucket = buckets.mutable_data_ptr<std::int64_t>();
    for (std::int64_t distance = -reach; distance <= reach; ++distance) {
      *bucket++ = relative_bucket(spec_, distance, causal);
    }
    known = buckets.to(device);
  }
  return known.narrow(0, known.size(0) / 2 + 1 - keys, keys + queries - 1);
}

at::Tensor relative_bias(const at::Tensor& table, RelativeBuckets& buckets, std::int64_t length,
                         bool causal, std::int64_t first) {
  const std::int64_t queries = length - first;
  // Keys side by side in memory, as fused attention kernels need them.
  const at::Tensor by_distance =
      at::embedding(table, buckets.of(length, queries, causal, table.device())).t().contiguous();
  // Windows of T distances, shifted to the left by one per query: [H, T - first, T].
  const at::Tensor bias = by_distance.unfold(1, length, 1).flip(1).unsqueeze(0);
  if (!causal) {
    return bias;
  }
  const double hidden = -std::numeric_limits<double>::infinity();
  const at::TensorOptions options = table.options().requires_grad(false);
  return bias + at::full({queries, length}, hidden, options).triu(1 + first);
}

}  // namespace regroup
