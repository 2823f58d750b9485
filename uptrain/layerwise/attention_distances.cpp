#include "uptrain/layerwise/attention_distances.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "formats/base/interruption.h"
#include "uptrain/ops/softcap.h"

namespace regroup {
namespace {

constexpr std::int64_t kMostScores = 1 << 24;  // computed at a time

// Sums along diagonals: element k of the result adds weights[:, i, T - 1 - (k - i)], so that k is
// i - j + T - 1 for row i and column j. weights: [H, R, T], result: [H, R + T - 1].
at::Tensor diagonal_sums(const at::Tensor& weights) {
  const std::int64_t heads = weights.size(0), rows = weights.size(1), length = weights.size(2);
  // A row of R + T elements, read as one of R + T - 1, begins one element further left.
  const at::Tensor wide = at::constant_pad_nd(weights.flip(2), {0, rows});
  return wide.flatten(1)
      .narrow(1, 0, rows * (rows + length - 1))
      .view({heads, rows, rows + length - 1})
      .sum(1);
}

}  // namespace

void AttentionDistances::add(const Heads& heads, const at::Tensor& mask,
                             std::optional<std::int64_t> window, const ScoreSettings& settings) {
  const std::int64_t batch = heads.q.size(0), query_heads = heads.q.size(1);
  const std::int64_t length = heads.q.size(2);
  if (!sums_.defined()) {
    sums_ = at::zeros({query_heads, length}, heads.q.options().dtype(at::kDouble));
  }
  const double factor =
      settings.scale.value_or(1.0 / std::sqrt(static_cast<double>(heads.q.size(3))));
  const at::Tensor keys =
      heads.k.repeat_interleave(query_heads / heads.k.size(1), 1).transpose(2, 3) * factor;
  const at::Tensor positions = at::arange(length, keys.options().dtype(at::kLong));
  const std::int64_t rows =
      std::clamp<std::int64_t>(kMostScores / (batch * query_heads * length), 1, length);
  for (std::int64_t first = 0; first < length; first += rows) {
    check_stop();
    const std::int64_t count = std::min(rows, length - first);
    const at::Tensor distance =
        positions.narrow(0, first, count).unsqueeze(1) - positions;  // [rows, T]
    at::Tensor scores =
        softcapped(at::matmul(heads.q.narrow(2, first, count), keys), settings.softcap);
    if (mask.defined()) {
      scores = scores + mask.narrow(2, first, count);
    }
    const at::Tensor hidden =
        window ? (distance < 0).logical_or(distance >= *window) : distance < 0;
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor weights = at::softmax(scores, -1).sum(0).to(at::kDouble);
    // Keys after the query have weight 0: distances begin at 0, in element T - 1 - first.
    sums_.narrow(1, 0, first + count)
        .add_(diagonal_sums(weights).narrow(1, length - 1 - first, first + count));
  }
}

at::Tensor AttentionDistances::shares() const {
  const at::Tensor kept = sums_.narrow(1, 0, std::min(most_, sums_.size(1)));
  return kept / kept.sum(1, true);
}

}  // namespace regroup
