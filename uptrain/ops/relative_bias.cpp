#include "uptrain/ops/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

namespace regroup {

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
