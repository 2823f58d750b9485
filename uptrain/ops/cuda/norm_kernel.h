// RMSNorm of rows (fused_ops.h), with or without the addition before it, and its gradients.
#pragma once

#include "uptrain/ops/cuda/row_kernel.h"

namespace regroup::kernels {

template <typename Number, int kWidth>
struct Norm {
  using Part = float;
  NormCall call;

  REGROUP_KERNEL std::int64_t rows() const { return call.rows; }
  REGROUP_KERNEL std::int64_t groups() const { return call.rows; }

  // The sum of squares. Stores x + update on the way; finish() reads what the same thread stored.
  REGROUP_KERNEL float gather(std::int64_t row, Team team) const {
    const std::int64_t begin = row * call.width;
    float squares = 0.0F;
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      auto x = load<kWidth>(static_cast<const Number*>(call.x) + begin + i);
      if (call.update != nullptr) {
        const auto more = load<kWidth>(static_cast<const Number*>(call.update) + begin + i);
        REGROUP_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          narrow(wide(x.at[j]) + wide(more.at[j]), x.at[j]);
        }
        store<kWidth>(static_cast<Number*>(call.sum) + begin + i, x);
      }
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        squares += wide(x.at[j]) * wide(x.at[j]);
      }
    }
    return squares;
  }

  REGROUP_KERNEL static float combine(float one, float other) { return one + other; }

  REGROUP_KERNEL void finish(std::int64_t row, Team team, float squares) const {
    const void* const normalised = call.update != nullptr ? call.sum : call.x;
    const std::int64_t begin = row * call.width;
    const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(call.width) + call.epsilon);
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      auto numbers = load<kWidth>(static_cast<const Number*>(normalised) + begin + i);
      const auto weight = load<kWidth>(static_cast<const Number*>(call.weight) + i);
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        narrow(wide(numbers.at[j]) * inverse * wide(weight.at[j]), numbers.at[j]);
      }
      store<kWidth>(static_cast<Number*>(call.y) + begin + i, numbers);
    }
    if (team.thread == 0) {
      call.inverse[row] = inverse;
    }
  }
};

// With n = x · inverse and h = outer · weight, the gradient by x is inverse · (h - n · mean(h ·
// n)). The gradient by the weight is the sum of outer · n over the rows, here over those of a
// group.
template <typename Number, int kWidth>
struct NormGradient {
  using Part = float;
  NormGradientCall call;
  std::int64_t number_of_groups;

  REGROUP_KERNEL std::int64_t rows() const { return call.rows; }
  REGROUP_KERNEL std::int64_t groups() const { return number_of_groups; }

  // The sum of outer · weight · x.
  REGROUP_KERNEL float gather(std::int64_t row, Team team) const {
    const std::int64_t begin = row * call.width;
    float along = 0.0F;
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      const auto x = load<kWidth>(static_cast<const Number*>(call.x) + begin + i);
      const auto outer = load<kWidth>(static_cast<const Number*>(call.outer) + begin + i);
      const auto weight = load<kWidth>(static_cast<const Number*>(call.weight) + i);
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        along += wide(outer.at[j]) * wide(weight.at[j]) * wide(x.at[j]);
      }
    }
    return along;
  }

  REGROUP_KERNEL static float combine(float one, float other) { return one + other; }

  REGROUP_KERNEL void finish(std::int64_t row, Team team, float along) const {
    const float inverse = call.inverse[row];
    const float share = along * inverse * inverse / static_cast<float>(call.width);
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      const auto scaled = store_by_x(row * call.width + i, i, {inverse, share});
      if (call.by_weight != nullptr) {
        add_by_weight(row, i, scaled);
      }
    }
  }

  struct RowFacts {
    float inverse, share;
  };

  // For the pack at `place` of the tensors and at `i` of the row. Returns outer · n.
  REGROUP_KERNEL Pack<float, kWidth> store_by_x(std::int64_t place, std::int64_t i,
                                                RowFacts row) const {
    const auto x = load<kWidth>(static_cast<const Number*>(call.x) + place);
    const auto outer = load<kWidth>(static_cast<const Number*>(call.outer) + place);
    const auto weight = load<kWidth>(static_cast<const Number*>(call.weight) + i);
    Pack<Number, kWidth> by_x = {};
    if (call.outer_sum != nullptr) {
      by_x = load<kWidth>(static_cast<const Number*>(call.outer_sum) + place);
    }
    Pack<float, kWidth> by_weight;
    REGROUP_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float scaled = wide(outer.at[j]) * row.inverse;
      by_weight.at[j] = scaled * wide(x.at[j]);
      narrow(
          wide(by_x.at[j]) + scaled * wide(weight.at[j]) - wide(x.at[j]) * row.inverse * row.share,
          by_x.at[j]);
    }
    store<kWidth>(static_cast<Number*>(call.by_x) + place, by_x);
    return by_weight;
  }

  // Adds to the sums of the row's group, which its first row begins.
  REGROUP_KERNEL void add_by_weight(std::int64_t row, std::int64_t i,
                                    const Pack<float, kWidth>& by_weight) const {
    const std::int64_t group = row / ((call.rows - 1) / number_of_groups + 1);
    float* const sums = call.by_weight + group * call.width + i;
    Pack<float, kWidth> sum = by_weight;
    if (row != rows_of_group(*this, group).begin) {
      const auto before = load<kWidth>(sums);
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        sum.at[j] += before.at[j];
      }
    }
    store<kWidth>(sums, sum);
  }
};

/// Launch the norm and its gradients; return null, or what went wrong.
template <typename Launcher>
const char* normalise(const NormCall& call, const Launcher& launch) {
  const bool aligned =
      are_aligned(call.type, call.x, call.update, call.sum, call.weight, call.y, call.width);
  return with_loads(call.type, aligned, [&](auto loads) {
    constexpr int kWidth = decltype(loads)::kWidth;
    return launch_rows(Norm<typename decltype(loads)::Number, kWidth>{call}, call.width / kWidth,
                       launch);
  });
}

template <typename Launcher>
const char* differentiate_norm(const NormGradientCall& call, const Launcher& launch) {
  const bool aligned = are_aligned(call.type, call.x, call.weight, call.outer, call.outer_sum,
                                   call.by_x, call.by_weight, call.width);
  return with_loads(call.type, aligned, [&](auto loads) {
    constexpr int kWidth = decltype(loads)::kWidth;
    return launch_rows(
        NormGradient<typename decltype(loads)::Number, kWidth>{call,
                                                               norm_groups(call.rows, call.width)},
        call.width / kWidth, launch);
  });
}

}  // namespace regroup::kernels
