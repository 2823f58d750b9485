#include "uptrain/ops/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "formats/base/printable.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {

bool can_fuse_adamw(c10::Device device) {
  return !device.is_cpu() && has_fused_kernel(FusedKernel::kAdamW, device);
}

void update_by_fused_adamw(const AdamWTensors& tensors, const AdamWNumbers& numbers,
                           const AdamWScalars& scalars) {
  const at::Tensor gradient = tensors.gradient.contiguous();
  const kernels::AdamWCall call = {
      .gradient_type = number_type(gradient),
      .moment_type = number_type(tensors.first),
      .gradient = gradient.const_data_ptr(),
      .master = tensors.master.mutable_data_ptr<float>(),
      .first = tensors.first.mutable_data_ptr(),
      .second = tensors.second.mutable_data_ptr(),
      .copy = tensors.copy.defined() ? tensors.copy.mutable_data_ptr() : nullptr,
      .divisor = scalars.divisor.const_data_ptr<float>(),
      .skip = scalars.skip.const_data_ptr<float>(),
      .updates = scalars.updates.const_data_ptr<float>(),
      .count = gradient.numel(),
      .rate = static_cast<float>(numbers.rate),
      .decay = static_cast<float>(numbers.decay),
      .one_less_beta1 = static_cast<float>(1.0 - numbers.beta1),
      .one_less_beta2 = static_cast<float>(1.0 - numbers.beta2),
      .log_beta1 = static_cast<float>(std::log(numbers.beta1)),
      .log_beta2 = static_cast<float>(std::log(numbers.beta2)),
      .epsilon = static_cast<float>(numbers.epsilon)};
  launch_kernel(&DeviceKernels::update_by_adamw, call, gradient);
}

namespace {

constexpr double kEpsilon = 1e-5;

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

// Numbers between -2 and 2 that repeat after no power of two.
at::Tensor numbers(at::IntArrayRef sizes, double phase, const at::TensorOptions& options) {
  const at::Tensor count =
      at::arange(c10::multiply_integers(sizes), options.dtype(at::kDouble)) + phase;
  return ((count * 0.7391).sin() + (count * 0.1173).cos()).view(sizes).to(options);
}

// The function's results and the gradients of its inputs.
Tensors with_gradients(const Function& function, const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().requires_grad_());
  }
  Tensors results = function(leaves);
  Tensors outer;
  for (const at::Tensor& result : results) {
    outer.push_back(numbers(result.sizes(), 5.0, result.options()));
  }
  for (at::Tensor& gradient : torch::autograd::grad(results, leaves, outer)) {
    results.push_back(std::move(gradient));
  }
  return results;
}

// The largest of ‖found − expected‖ / ‖expected‖; infinite if there is a NaN.
double error_of(const Tensors& found, const Tensors& expected) {
  double largest = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const at::Tensor exact = expected[i].detach().to(at::kDouble);
    const at::Tensor difference = found[i].detach().to(at::kDouble) - exact;
    const double error = (difference.norm() / exact.norm()).item<double>();
    largest = error >= 0.0 ? std::max(largest, error) : INFINITY;
  }
  return largest;
}

double error_of(const Function& fused, const Function& separate, const Tensors& inputs) {
  Tensors exact;
  for (const at::Tensor& input : inputs) {
    exact.push_back(input.to(at::kDouble));
  }
  return error_of(with_gradients(fused, inputs), with_gradients(separate, exact));
}

// `width` is once a multiple of 16 bytes, once odd, so that each way of loading is checked.

double rotation_error(std::int64_t width, const at::TensorOptions& options) {
  double largest = 0.0;
  const std::int64_t half = width / 4;
  const at::Tensor angles = numbers({5, half}, 0.0, options.dtype(at::kDouble)) * 3.0;
  for (const bool interleaved : {false, true}) {
    const RopeTable exact = {angles.cos().to(options).to(at::kDouble),
                             angles.sin().to(options).to(at::kDouble), interleaved};
    const RopeTable table = {exact.cosine.to(options), exact.sine.to(options), interleaved};
    const at::Tensor x = numbers({2, 5, 3, width}, 1.0, options).transpose(1, 2);
    largest = std::max(
        largest, error_of([&](const Tensors& in) { return Tensors{fused_rotation(in[0], table)}; },
                          [&](const Tensors& in) { return Tensors{rotate(in[0], exact)}; }, {x}));
  }
  return largest;
}

double gated_error(std::int64_t width, const at::TensorOptions& options) {
  double largest = 0.0;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    const auto fused = [&](const Tensors& in) {
      return Tensors{fused_gated_activation(activation, in[0], in[1])};
    };
    const auto separate = [&](const Tensors& in) {
      return Tensors{(activation == Activation::kSilu ? at::silu(in[0]) : at::gelu(in[0], "tanh")) *
                     in[1]};
    };
    largest = std::max(largest, error_of(fused, separate,
                                         {numbers({41, width}, 1.0, options) * 3.0,
                                          numbers({41, width}, 2.0, options)}));
  }
  return largest;
}

double norm_error(std::int64_t width, const at::TensorOptions& options) {
  const at::Tensor x = numbers({37, width}, 1.0, options);
  const at::Tensor weight = numbers({width}, 3.0, options);
  return error_of(
      [](const Tensors& in) { return Tensors{fused_rms_norm(in[0], in[1], kEpsilon)}; },
      [&](const Tensors& in) { return Tensors{at::rms_norm(in[0], {width}, in[1], kEpsilon)}; },
      {x, weight});
}

double added_norm_error(std::int64_t width, const at::TensorOptions& options) {
  const Tensors inputs = {numbers({37, width}, 1.0, options), numbers({37, width}, 2.0, options),
                          numbers({width}, 3.0, options)};
  // The sum is rounded before it is normalised.
  const at::Tensor exact_sum = inputs[0].to(at::kDouble) + inputs[1].to(at::kDouble);
  const at::Tensor rounding = (inputs[0] + inputs[1]).to(at::kDouble) - exact_sum;
  const auto fused = [](const Tensors& in) {
    const NormedSum both = fused_add_rms_norm(in[0], in[1], in[2], kEpsilon);
    return Tensors{both.sum, both.normal};
  };
  const auto separate = [&](const Tensors& in) {
    const at::Tensor sum = in[0] + in[1] + rounding;
    return Tensors{sum, at::rms_norm(sum, {width}, in[2], kEpsilon)};
  };
  return error_of(fused, separate, inputs);
}

// A warp suffices for the narrower rows, the others take a block.
double all_norms_error(std::int64_t width, const at::TensorOptions& options) {
  return std::max({norm_error(width, options), norm_error(80 * width, options),
                   added_norm_error(width, options), added_norm_error(80 * width, options)});
}

double cross_entropy_error(std::int64_t width, const at::TensorOptions& options) {
  double largest = 0.0;
  for (const std::int64_t wide : {width, 80 * width}) {
    const at::Tensor logits = numbers({9, wide}, 1.0, options) * 4.0;
    const at::Tensor targets = at::arange(9, options.dtype(at::kLong)) * 31 % wide;
    const at::Tensor loss = at::zeros({}, options.dtype(at::kFloat));
    const at::Tensor gradient = logits.clone();
    add_fused_cross_entropy(loss, gradient, targets, 0.25, /*with_gradient=*/true);
    const at::Tensor leaf = logits.to(at::kDouble).requires_grad_();
    const at::Tensor exact =
        at::_log_softmax(leaf, 1, false).gather(1, targets.unsqueeze(1)).sum() * -0.25;
    const Tensors expected = {exact, torch::autograd::grad({exact}, {leaf}).front()};
    largest = std::max(largest, error_of({loss, gradient}, expected));
  }
  return largest;
}

// An update, compared with the formula, and one that is skipped. Of the masters their change is
// compared.
double adamw_error(std::int64_t width, const at::TensorOptions& options) {
  const AdamWNumbers how = {
      .rate = 0.1, .decay = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-3};
  const at::Tensor begin = numbers({23, width}, 1.0, options.dtype(at::kFloat));
  const AdamWTensors found = {.master = begin.clone(),
                              .copy = begin.to(at::kBFloat16),
                              .first = numbers({23, width}, 2.0, options),
                              .second = numbers({23, width}, 3.0, options).square(),
                              .gradient = numbers({23, width}, 4.0, options)};
  const at::Tensor scalars = at::ones({3}, options.dtype(at::kFloat)).cumsum(0);  // 1, 2, 3
  const at::Tensor none = at::zeros({1}, scalars.options());
  const at::Tensor g = found.gradient.to(at::kDouble) / 2.0;
  const at::Tensor m = found.first.to(at::kDouble) * how.beta1 + g * (1.0 - how.beta1);
  const at::Tensor v = found.second.to(at::kDouble) * how.beta2 + g.square() * (1.0 - how.beta2);
  const at::Tensor step = (m / (1.0 - std::pow(how.beta1, 3))) /
                          ((v / (1.0 - std::pow(how.beta2, 3))).sqrt() + how.epsilon);
  const at::Tensor change = begin.to(at::kDouble) * -how.decay - step * how.rate;
  update_by_fused_adamw(found, how, {scalars[1], none, scalars[2]});
  const at::Tensor after = found.master.clone();
  update_by_fused_adamw(found, how, {scalars[1], scalars[0], scalars[2]});  // is skipped
  const double kept = (found.master - after).abs().max().item<double>();
  const double copied = (found.copy - found.master.to(at::kBFloat16)).abs().max().item<double>();
  return kept + copied +
         error_of({found.master - begin, found.first, found.second}, {change, m, v});
}

struct Check {
  FusedKernel kernel;
  const char* name;
  double (*error)(std::int64_t width, const at::TensorOptions& options);
};

constexpr Check kChecks[] = {{FusedKernel::kRotation, "RoPE", rotation_error},
                             {FusedKernel::kGatedActivation, "gated activations", gated_error},
                             {FusedKernel::kRmsNorm, "RMSNorm", all_norms_error},
                             {FusedKernel::kCrossEntropy, "cross-entropy", cross_entropy_error},
                             {FusedKernel::kAdamW, "AdamW", adamw_error}};

// What is wrong with the kernel; empty if nothing is, or if the device has none.
std::string fault_of(const Check& check, c10::Device device) {
  try {
    // Even this fails on a GPU without free memory.
    if (!has_fused_kernel(check.kernel,
                          at::zeros({1}, at::TensorOptions(at::kFloat).device(device)))) {
      return "";
    }
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const double tolerance = type == at::kFloat ? 1e-5 : 1e-2;
      for (const std::int64_t width : {64, 45}) {
        const double error = check.error(width, at::TensorOptions(type).device(device));
        if (!(error < tolerance)) {
          return fmt::format("differs by {:.2g} in {}", error, c10::toString(type));
        }
      }
    }
  } catch (const std::exception& fault) {  // of c10::Error, a backtrace begins another line
    const std::string text = fault.what();
    return "failed: " + printable(text.substr(0, text.find('\n')), 200);
  }
  return "";
}

}  // namespace

std::vector<std::string> check_device_kernels(c10::Device device) {
  const at::AutoGradMode with_gradients_on(true);
  std::vector<std::string> faults;
  for (const Check& check : kChecks) {
    const std::string fault = fault_of(check, device);
    if (!fault.empty()) {
      turn_off(check.kernel);
      faults.push_back(fmt::format(
          "the fused kernel of {} {}; LibTorch's operators are used instead", check.name, fault));
    }
  }
  return faults;
}

}  // namespace regroup
