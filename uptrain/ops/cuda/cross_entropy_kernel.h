// Cross-entropy of rows of logits and its gradient in their place (fused_ops.h). A row is
// read twice: for its largest logit and Σ exp, then for the gradient.
#pragma once

#include "uptrain/ops/cuda/row_kernel.h"

namespace regroup::kernels {

/// Σ exp(logit - largest) over some logits of a row.
struct LogSum {
  float largest, sum;
};

/// exp(number - largest), also where both are the same infinity.
REGROUP_KERNEL float relative_exp(float number, float largest) {
  return number == largest ? 1.0F : std::exp(number - largest);
}

template <typename Number, int kWidth>
struct CrossEntropy {
  using Part = LogSum;
  CrossEntropyCall call;

  REGROUP_KERNEL std::int64_t rows() const { return call.rows; }
  REGROUP_KERNEL std::int64_t groups() const { return call.rows; }

  REGROUP_KERNEL LogSum gather(std::int64_t row, Team team) const {
    const Number* const logits = static_cast<const Number*>(call.logits) + row * call.stride;
    LogSum part = {-HUGE_VALF, 0.0F};
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      const auto numbers = load<kWidth>(logits + i);
      float largest = part.largest;
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        largest = wide(numbers.at[j]) > largest ? wide(numbers.at[j]) : largest;
      }
      part = {largest, part.sum * relative_exp(part.largest, largest)};
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        part.sum += relative_exp(wide(numbers.at[j]), largest);
      }
    }
    return part;
  }

  REGROUP_KERNEL static LogSum combine(LogSum one, LogSum other) {
    const float largest = one.largest > other.largest ? one.largest : other.largest;
    return {largest, one.sum * relative_exp(one.largest, largest) +
                         other.sum * relative_exp(other.largest, largest)};
  }

  REGROUP_KERNEL void finish(std::int64_t row, Team team, LogSum total) const {
    Number* const logits = static_cast<Number*>(call.logits) + row * call.stride;
    const std::int64_t target = call.targets[row];
    const bool valid = target >= 0 && target < call.width && total.largest < HUGE_VALF;
    const float log_sum = valid ? total.largest + std::log(total.sum) : NAN;
    // The thread that will overwrite the target's logit reads it first.
    const std::int64_t reader = valid ? target / kWidth % team.threads : 0;
    if (team.thread == reader) {
      call.losses[row] = valid ? log_sum - wide(logits[target]) : NAN;
    }
    if (!call.with_gradient) {
      return;
    }
    for (std::int64_t i = team.thread * kWidth; i < call.width; i += team.threads * kWidth) {
      auto numbers = load<kWidth>(logits + i);
      REGROUP_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const float expected = i + j == target ? 1.0F : 0.0F;
        narrow((std::exp(wide(numbers.at[j]) - log_sum) - expected) * call.scale, numbers.at[j]);
      }
      store<kWidth>(logits + i, numbers);
    }
  }
};

/// Launches the kernel; returns null, or what went wrong.
template <typename Launcher>
const char* take_cross_entropy(const CrossEntropyCall& call, const Launcher& launch) {
  const bool aligned = are_aligned(call.type, call.logits, call.width, call.stride);
  return with_loads(call.type, aligned, [&](auto loads) {
    constexpr int kWidth = decltype(loads)::kWidth;
    return launch_rows(CrossEntropy<typename decltype(loads)::Number, kWidth>{call},
                       call.width / kWidth, launch);
  });
}

}  // namespace regroup::kernels
