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

// Both activations are g · σ(z). For SiLU, z = g. For the tanh form of GELU, z = linear · g + cubic
// · g³, because (1 + tanh(z/2)) / 2 = σ(z).
struct Curve {
  float linear = 1.0F;
  float cubic = 0.0F;
};

Curve curve_of(Activation activation) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691216F;
  return activation == Activation::kSilu
             ? Curve{}
             : Curve{kTwiceRootOfTwoOverPi, 0.044715F * kTwiceRootOfTwoOverPi};
}

REGROUP_INLINE float sigmoid(const Curve& curve, float gate) {
  return 1.0F / (1.0F + exponential(-gate * (curve.linear + curve.cubic * gate * gate)));
}

template <typename Number>
struct GatedNumbers {
  const Number* gate;
  const Number* up;
  Curve curve;
};

template <typename Number>
REGROUP_INLINE void activate(const GatedNumbers<Number>& numbers, Number* y, std::int64_t begin,
                             std::int64_t end) {
  const Curve curve = numbers.curve;
  const Number* const gates = numbers.gate;
  const Number* const ups = numbers.up;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float gate = wide(gates[i]);
    y[i] = narrow<Number>(gate * sigmoid(curve, gate) * wide(ups[i]));
  }
}

template <typename Number>
struct GatedGradients {
  const Number* outer;
  Number* by_gate;
  Number* by_up;
};

// With s = σ(z), the gradient by the gate is outer · up · (s + g · s · (1 - s) · dz/dg), and the
// gradient by up is outer · g · s.
template <typename Number>
REGROUP_INLINE void differentiate(const GatedNumbers<Number>& numbers,
                                  const GatedGradients<Number>& gradients, std::int64_t begin,
                                  std::int64_t end) {
  const Curve curve = numbers.curve;
  const Number* const gates = numbers.gate;
  const Number* const ups = numbers.up;
  const Number* const from = gradients.outer;
  Number* const by_gate = gradients.by_gate;
  Number* const by_up = gradients.by_up;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const float gate = wide(gates[i]);
    const float outer = wide(from[i]);
    const float open = sigmoid(curve, gate);
    const float steepness = curve.linear + 3.0F * curve.cubic * gate * gate;
    const float slope = open + gate * open * (1.0F - open) * steepness;
    by_gate[i] = narrow<Number>(outer * wide(ups[i]) * slope);
    by_up[i] = narrow<Number>(outer * gate * open);
  }
}

REGROUP_VECTORISED void activate_numbers(const GatedNumbers<float>& numbers, float* y,
                                         std::int64_t begin, std::int64_t end) {
  activate(numbers, y, begin, end);
}

REGROUP_VECTORISED void activate_numbers(const GatedNumbers<c10::BFloat16>& numbers,
                                         c10::BFloat16* y, std::int64_t begin, std::int64_t end) {
  activate(numbers, y, begin, end);
}

REGROUP_VECTORISED void differentiate_numbers(const GatedNumbers<float>& numbers,
                                              const GatedGradients<float>& gradients,
                                              std::int64_t begin, std::int64_t end) {
  differentiate(numbers, gradients, begin, end);
}

REGROUP_VECTORISED void differentiate_numbers(const GatedNumbers<c10::BFloat16>& numbers,
                                              const GatedGradients<c10::BFloat16>& gradients,
                                              std::int64_t begin, std::int64_t end) {
  differentiate(numbers, gradients, begin, end);
}

template <typename Number>
GatedNumbers<Number> numbers_of(const at::Tensor& gate, const at::Tensor& up, const Curve& curve) {
  return {gate.const_data_ptr<Number>(), up.const_data_ptr<Number>(), curve};
}

template <typename Number>
void activate_all(const GatedNumbers<Number>& numbers, const at::Tensor& y) {
  Number* const to = y.mutable_data_ptr<Number>();
  at::parallel_for(0, y.numel(), kNumbersPerThread, [&](std::int64_t begin, std::int64_t end) {
    activate_numbers(numbers, to, begin, end);
  });
}

template <typename Number>
void differentiate_all(const GatedNumbers<Number>& numbers, const at::Tensor& outer,
                       const at::Tensor& by_gate, const at::Tensor& by_up) {
  const GatedGradients<Number> gradients{outer.const_data_ptr<Number>(),
                                         by_gate.mutable_data_ptr<Number>(),
                                         by_up.mutable_data_ptr<Number>()};
  at::parallel_for(0, outer.numel(), kNumbersPerThread, [&](std::int64_t begin, std::int64_t end) {
    differentiate_numbers(numbers, gradients, begin, end);
  });
}

// `y`: null in the backward pass.
kernels::GatedCall call_of(const at::Tensor& gate, const at::Tensor& up, const Curve& curve,
                           void* y) {
  return {.type = number_type(gate),
          .gate = gate.const_data_ptr(),
          .up = up.const_data_ptr(),
          .y = y,
          .count = gate.numel(),
          .linear = curve.linear,
          .cubic = curve.cubic};
}

void differentiate_on_device(const kernels::GatedCall& forward, const at::Tensor& outer,
                             const at::Tensor& by_gate, const at::Tensor& by_up) {
  const kernels::GatedGradientCall call = {.forward = forward,
                                           .outer = outer.const_data_ptr(),
                                           .by_gate = by_gate.mutable_data_ptr(),
                                           .by_up = by_up.mutable_data_ptr()};
  launch_kernel(&DeviceKernels::differentiate_gated, call, outer);
}

struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gates,
                            const at::Tensor& ups, Activation activation) {
    const at::Tensor gate = gates.contiguous();
    const at::Tensor up = ups.contiguous();
    const at::Tensor y = at::empty_like(gate);
    const Curve curve = curve_of(activation);
    if (!gate.is_cpu()) {
      launch_kernel(&DeviceKernels::activate_gated, call_of(gate, up, curve, y.mutable_data_ptr()),
                    y);
    } else if (gate.scalar_type() == at::kFloat) {
      activate_all(numbers_of<float>(gate, up, curve), y);
    } else {
      activate_all(numbers_of<c10::BFloat16>(gate, up, curve), y);
    }
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
    const Curve curve =
        curve_of(static_cast<Activation>(context->saved_data["activation"].toInt()));
    if (!gate.is_cpu()) {
      differentiate_on_device(call_of(gate, up, curve, nullptr), outer, by_gate, by_up);
    } else if (gate.scalar_type() == at::kFloat) {
      differentiate_all(numbers_of<float>(gate, up, curve), outer, by_gate, by_up);
    } else {
      differentiate_all(numbers_of<c10::BFloat16>(gate, up, curve), outer, by_gate, by_up);
    }
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
