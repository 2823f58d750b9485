#include "uptrain/layerwise/attention_distances.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

namespace regroup {
namespace {

constexpr std::int64_t kMostScores = 1 << 24;  // computed at a time

}  // namespace

void AttentionDistances::add(const Heads& heads, const at::Tensor& mask,
                             std::optional<std::int64_t> window, std::optional<double> scale) {
  const std::int64_t batch = heads.q.size(0), query_heads = heads.q.size(1);
  const std::int64_t length = heads.q.size(2);
  if (!sums_.defined()) {
    sums_ = at::zeros({query_heads, length}, at::kDouble);
  }
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(heads.q.size(3))));
  const at::Tensor keys =
      heads.k.repeat_interleave(query_heads / heads.k.size(1), 1).transpose(2, 3) * factor;
  const at::Tensor positions = at::arange(length, keys.options().dtype(at::kLong));
  const std::int64_t rows =
      std::clamp<std::int64_t>(kMostScores / (batch * query_heads * length), 1, length);
  for (std::int64_t first = 0; first < length; first += rows) {
    const std::int64_t count = std::min(rows, length - first);
    const at::Tensor distance =
        positions.narrow(0, first, count).unsqueeze(1) - positions;  // [rows, T]
    at::Tensor scores = at::matmul(heads.q.narrow(2, first, count), keys);
    if (mask.defined()) {
      scores = scores + mask.narrow(2, first, count);
    }
    const at::Tensor hidden =
        window ? (distance < 0).logical_or(distance >= *window) : distance < 0;
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor weights = at::softmax(scores, -1).sum(0).to(at::kDouble).cpu();
    // Keys after the query have weight 0, and can be added to any distance.
    sums_.index_add_(1, distance.clamp_min(0).flatten().cpu(), weights.flatten(1));
  }
}

at::Tensor AttentionDistances::shares() const {
  const at::Tensor kept = sums_.narrow(1, 0, std::min(most_, sums_.size(1)));
  return kept / kept.sum(1, true);
}

}  // namespace regroup
