#include <cstdint>

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "converter/pooling/parallel_for.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The least number of elements per thread.
constexpr std::int64_t kNumbersPerThread = 1 << 14;

// σ(z) for z = linear · gate + cubic · gate³.
REGROUP_INLINE float opening(float gate, float linear, float cubic) {
  return 1.0F / (1.0F + exponential(-gate * (linear + cubic * gate * gate)));
}

template <typename Number>
REGROUP_VECTORISED void activate_numbers(const kernels::GatedCall& call, std::int64_t begin,
                                         std::int64_t end) {
  const Number* const gates = static_cast<const Number*>(call.gate);
  const Number* const ups = static_cast<const Number*>(call.up);
  Number* const y = static_cast<Number*>(call.y);
  const float linear = call.linear, cubic = call.cubic;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float gate = wide(gates[i]);
    y[i] = narrow<Number>(gate * opening(gate, linear, cubic) * wide(ups[i]));
  }
}

// With s = σ(z), the gradient by the gate is outer · up · (s + g · s · (1 - s) · dz/dg), and the
// gradient by up is outer · g · s.
template <typename Number>
REGROUP_VECTORISED void differentiate_numbers(const kernels::GatedGradientCall& call,
                                              std::int64_t begin, std::int64_t end) {
  const Number* const gates = static_cast<const Number*>(call.forward.gate);
  const Number* const ups = static_cast<const Number*>(call.forward.up);
  const Number* const from = static_cast<const Number*>(call.outer);
  Number* const by_gate = static_cast<Number*>(call.by_gate);
  Number* const by_up = static_cast<Number*>(call.by_up);
  const float linear = call.forward.linear, cubic = call.forward.cubic;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float gate = wide(gates[i]);
    const float outer = wide(from[i]);
    const float open = opening(gate, linear, cubic);
    const float steepness = linear + 3.0F * cubic * gate * gate;
    const float slope = open + gate * open * (1.0F - open) * steepness;
    by_gate[i] = narrow<Number>(outer * wide(ups[i]) * slope);
    by_up[i] = narrow<Number>(outer * gate * open);
  }
}

void activate_gated_on_cpu(const kernels::GatedCall& call) {
  with_row_number(call.type, [&](auto number) {
    at::parallel_for(0, call.count, kNumbersPerThread, [&](std::int64_t begin, std::int64_t end) {
      activate_numbers<decltype(number)>(call, begin, end);
    });
  });
}

void differentiate_gated_on_cpu(const kernels::GatedGradientCall& call) {
  with_row_number(call.forward.type, [&](auto number) {
    at::parallel_for(0, call.forward.count, kNumbersPerThread,
                     [&](std::int64_t begin, std::int64_t end) {
                       differentiate_numbers<decltype(number)>(call, begin, end);
                     });
  });
}

// Both activations are g · σ(z). For SiLU, z = g. For the tanh form of GELU, z = linear · g + cubic
// · g³, because (1 + tanh(z/2)) / 2 = σ(z). `y`: null in the backward pass.
kernels::GatedCall call_of(Activation activation, const at::Tensor& gate, const at::Tensor& up,
                           void* y) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691216F;
  const bool silu = activation == Activation::kSilu;
  return {.type = number_type(gate),
          .gate = gate.const_data_ptr(),
          .up = up.const_data_ptr(),
          .y = y,
          .count = gate.numel(),
          .linear = silu ? 1.0F : kTwiceRootOfTwoOverPi,
          .cubic = silu ? 0.0F : 0.044715F * kTwiceRootOfTwoOverPi};
}

struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gates,
                            const at::Tensor& ups, Activation activation) {
    const at::Tensor gate = gates.contiguous();
    const at::Tensor up = ups.contiguous();
    const at::Tensor y = at::empty_like(gate);
    launch_kernel(&DeviceKernels::activate_gated, activate_gated_on_cpu,
                  call_of(activation, gate, up, y.mutable_data_ptr()), y);
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gate = saved[0];
    const at::Tensor& up = saved[1];
    const at::Tensor outer = gradients.front().contiguous();
    const at::Tensor by_gate = at::empty_like(gate);
    const at::Tensor by_up = at::empty_like(up);
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const kernels::GatedGradientCall call = {.forward = call_of(activation, gate, up, nullptr),
                                             .outer = outer.const_data_ptr(),
                                             .by_gate = by_gate.mutable_data_ptr(),
                                             .by_up = by_up.mutable_data_ptr()};
    launch_kernel(&DeviceKernels::differentiate_gated, differentiate_gated_on_cpu, call, outer);
    return {by_gate, by_up, at::Tensor()};
  }
};

}  // namespace

bool can_fuse_gated_activation(Activation activation, const at::Tensor& gate,
                               const at::Tensor& up) {
  return (activation == Activation::kSilu || activation == Activation::kGeluTanh) &&
         has_fused_kernel(FusedKernel::kGatedActivation, gate) && gate.numel() > 0 &&
         up.device() == gate.device() && up.scalar_type() == gate.scalar_type() &&
         gate.sizes() == up.sizes();
}

at::Tensor fused_gated_activation(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up) {
  return GatedActivation::apply(gate, up, activation);
}

}  // namespace regroup
