// One update by AdamW, a pack of weights per thread: reads a gradient, the master and the moments,
// and writes master, moments and the bf16 weight that the model computes with.
#pragma once

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

/// 1 - beta^updates, without the cancellation of the plain difference.
REGROUP_KERNEL float correction(float log_beta, float updates) {
  return -std::expm1(updates * log_beta);
}

template <typename Gradient, typename Moment, int kWidth>
struct AdamWUpdate {
  AdamWCall call;

  std::int64_t blocks() const { return (call.count - 1) / (kBlockThreads * kWidth) + 1; }

  REGROUP_KERNEL void operator()(std::int64_t block, int thread) const {
    const std::int64_t begin = (block * kBlockThreads + thread) * kWidth;
    if (begin >= call.count || *call.skip != 0.0F) {
      return;
    }
    const float divisor = *call.divisor;
    const float scale = call.rate / correction(call.log_beta1, *call.updates);
    const float widening = 1.0F / std::sqrt(correction(call.log_beta2, *call.updates));
    const auto gradients = load<kWidth>(static_cast<const Gradient*>(call.gradient) + begin);
    auto masters = load<kWidth>(call.master + begin);
    auto firsts = load<kWidth>(static_cast<const Moment*>(call.first) + begin);
    auto seconds = load<kWidth>(static_cast<const Moment*>(call.second) + begin);
    Pack<BFloat16, kWidth> copies;
    REGROUP_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float gradient = wide(gradients.at[i]) / divisor;
      const float old_first = wide(firsts.at[i]);
      const float old_second = wide(seconds.at[i]);
      const float first = old_first + call.one_less_beta1 * (gradient - old_first);
      const float second = old_second + call.one_less_beta2 * (gradient * gradient - old_second);
      const float decayed = masters.at[i] - call.decay * masters.at[i];
      masters.at[i] = decayed - scale * first / (std::sqrt(second) * widening + call.epsilon);
      narrow(first, firsts.at[i]);
      narrow(second, seconds.at[i]);
      narrow(masters.at[i], copies.at[i]);
    }
    store<kWidth>(call.master + begin, masters);
    store<kWidth>(static_cast<Moment*>(call.first) + begin, firsts);
    store<kWidth>(static_cast<Moment*>(call.second) + begin, seconds);
    if (call.copy != nullptr) {
      store<kWidth>(static_cast<BFloat16*>(call.copy) + begin, copies);
    }
  }
};

/// Launches the update; returns null, or what went wrong.
template <typename Launcher>
const char* update_by_adamw(const AdamWCall& call, const Launcher& launch) {
  const bool aligned = are_aligned(NumberType::kBFloat16, call.gradient, call.master, call.first,
                                   call.second, call.copy, call.count);
  return with_number(call.gradient_type, [&](auto gradient) {
    return with_number(call.moment_type, [&](auto moment) {
      using Gradient = decltype(gradient);
      using Moment = decltype(moment);
      return aligned ? launch.each(AdamWUpdate<Gradient, Moment, 8>{call})
                     : launch.each(AdamWUpdate<Gradient, Moment, 1>{call});
    });
  });
}

}  // namespace regroup::kernels
