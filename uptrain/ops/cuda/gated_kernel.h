// The activation of a gated MLP (fused_ops.h) and its gradients, a pack of numbers per
// thread.
#pragma once

#include "uptrain/ops/cuda/kernel_calls.h"

namespace regroup::kernels {

/// 1 / (1 + exp(-z)) for z = linear · gate + cubic · gate³.
REGROUP_KERNEL float opening(const GatedCall& call, float gate) {
  return 1.0F / (1.0F + std::exp(-gate * (call.linear + call.cubic * gate * gate)));
}

template <typename Number, int kWidth>
struct Gated {
  GatedCall call;

  std::int64_t blocks() const { return (call.count - 1) / (kBlockThreads * kWidth) + 1; }

  REGROUP_KERNEL void operator()(std::int64_t block, int thread) const {
    const std::int64_t first = (block * kBlockThreads + thread) * kWidth;
    if (first >= call.count) {
      return;
    }
    const auto gates = load<kWidth>(static_cast<const Number*>(call.gate) + first);
    auto numbers = load<kWidth>(static_cast<const Number*>(call.up) + first);
    REGROUP_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float gate = wide(gates.at[i]);
      narrow(gate * opening(call, gate) * wide(numbers.at[i]), numbers.at[i]);
    }
    store<kWidth>(static_cast<Number*>(call.y) + first, numbers);
  }
};

// With s = σ(z), the gradient by the gate is outer · up · (s + g · s · (1 - s) · dz/dg), and the
// gradient by up is outer · g · s.
template <typename Number, int kWidth>
struct GatedGradient {
  GatedGradientCall call;

  std::int64_t blocks() const { return Gated<Number, kWidth>{call.forward}.blocks(); }

  REGROUP_KERNEL void operator()(std::int64_t block, int thread) const {
    const std::int64_t first = (block * kBlockThreads + thread) * kWidth;
    if (first >= call.forward.count) {
      return;
    }
    auto gates = load<kWidth>(static_cast<const Number*>(call.forward.gate) + first);
    auto ups = load<kWidth>(static_cast<const Number*>(call.forward.up) + first);
    const auto outers = load<kWidth>(static_cast<const Number*>(call.outer) + first);
    REGROUP_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      const float gate = wide(gates.at[i]);
      const float outer = wide(outers.at[i]);
      const float open = opening(call.forward, gate);
      const float steepness = call.forward.linear + 3.0F * call.forward.cubic * gate * gate;
      const float slope = open + gate * open * (1.0F - open) * steepness;
      narrow(outer * wide(ups.at[i]) * slope, gates.at[i]);
      narrow(outer * gate * open, ups.at[i]);
    }
    store<kWidth>(static_cast<Number*>(call.by_gate) + first, gates);
    store<kWidth>(static_cast<Number*>(call.by_up) + first, ups);
  }
};

/// Launch the activation and its gradients; return null, or what went wrong.
template <typename Launcher>
const char* activate_gated(const GatedCall& call, const Launcher& launch) {
  const bool aligned = are_aligned(call.type, call.gate, call.up, call.y, call.count);
  return with_loads(call.type, aligned, [&](auto loads) {
    return launch.each(Gated<typename decltype(loads)::Number, decltype(loads)::kWidth>{call});
  });
}

template <typename Launcher>
const char* differentiate_gated(const GatedGradientCall& call, const Launcher& launch) {
  const GatedCall& forward = call.forward;
  const bool aligned = are_aligned(forward.type, forward.gate, forward.up, forward.count,
                                   call.outer, call.by_gate, call.by_up);
  return with_loads(forward.type, aligned, [&](auto loads) {
    return launch.each(
        GatedGradient<typename decltype(loads)::Number, decltype(loads)::kWidth>{call});
  });
}

}  // namespace regroup::kernels
