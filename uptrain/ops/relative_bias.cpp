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

at::Tensor relative_bias(const at::Tensor& table, const RelativeBiasSpec& spec, std::int64_t length,
                         bool causal, std::int64_t first) {
  const std::int64_t queries = length - first;
  at::Tensor buckets = at::empty({length + queries - 1}, at::kLong);  // of distances from 1-T
  auto* bucket = buckets.mutable_data_ptr<std::int64_t>();
  for (std::int64_t distance = 1 - length; distance < queries; ++distance) {
    *bucket++ = relative_bucket(spec, distance, causal);
  }
  const at::Tensor by_distance = at::embedding(table, buckets.to(table.device())).t();
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
