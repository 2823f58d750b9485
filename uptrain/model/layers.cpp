#include "uptrain/model/layers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"

namespace regroup {

namespace {

std::vector<at::Tensor> tensors_called(const std::vector<std::string>& names,
                                       const Parameters& parameters) {
  std::vector<at::Tensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back(parameters.at(name));
  }
  return tensors;
}

// One weight per expert. All views of a tensor are made at once, so that its gradient is stacked
// once.
std::vector<at::Tensor> per_expert(const std::vector<at::Tensor>& stored, bool stacked) {
  return stacked && !stored.empty() ? stored.front().unbind(0) : stored;
}

}  // namespace

ExpertLayer make_expert_layer(const ExpertTensors& names, const Parameters& parameters) {
  if (!names.present()) {
    return {};
  }
  const bool fused_gate = names.fused_gate();
  return {.router = parameters.at(names.router),
          .gate = tensors_called(names.gate, parameters),
          .up = tensors_called(fused_gate ? std::vector<std::string>() : names.up, parameters),
          .down = tensors_called(names.down, parameters),
          .stacked = names.stacked,
          .fused_gate = fused_gate};
}

at::Tensor run_experts(const ExpertLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                       const RoutingObserver& observer) {
  const at::Tensor tokens = x.flatten(0, 1);  // [B·T, D]
  const RoutedTokens routed = route(at::linear(tokens, layer.router), spec.routing);
  if (observer) {
    observer.call(sum_per_sequence(routed, x.size(0), observer.counted));
  }
  const auto gate = per_expert(layer.gate, layer.stacked);
  const auto up = per_expert(layer.up, layer.stacked);
  const auto down = per_expert(layer.down, layer.stacked);
  const auto compute = [&](std::size_t expert, const at::Tensor& own) {
    const at::Tensor features = at::linear(own, gate[expert]);
    const at::Tensor product = layer.fused_gate
                                   ? gated_halves(spec.activation, features)
                                   : gated(spec.activation, features, at::linear(own, up[expert]));
    return at::linear(product, down[expert]);
  };
  return mix_experts(tokens, routed, spec.routing.experts, compute).view(x.sizes());
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  check_stop();
  return at::linear(x, input_major ? weight.t() : weight, if_defined(bias));
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearsOfOneInput : torch::autograd::Function<LinearsOfOneInput> {
  // `tensors`: x [..., in], the weights [out, in], and as many biases [out], or none.
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               std::int64_t maps) {
    context->set_materialize_grads(false);  // of a map that the loss does not use
    const auto count = static_cast<std::size_t>(maps);
    variable_list saved = tensors.slice(0, 1 + count).vec();
    variable_list results;
    bool learns = false;
    for (std::size_t i = 1; i <= count; ++i) {
      const bool biased = tensors.size() > saved.size();
      results.push_back(at::linear(saved[0], saved[i],
                                   biased ? std::optional(tensors[count + i]) : std::nullopt));
      learns = learns || saved[i].requires_grad();
    }
    saved[0] = learns ? saved[0] : at::Tensor();  // else the backward pass does not need it
    context->save_for_backward(std::move(saved));
    context->saved_data["biased"] = tensors.size() > 1 + count;
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const bool biased = context->saved_data["biased"].toBool();
    const std::size_t maps = outer.size();
    const auto rows = [](const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); };
    variable_list gradients(1 + (biased ? 2 : 1) * maps + 1);  // the last: of the count
    at::Tensor& by_x = gradients[0];
    std::vector<std::int64_t> shape;
    for (std::size_t i = 1; i <= maps; ++i) {
      if (!outer[i - 1].defined()) {
        continue;
      }
      shape = outer[i - 1].sizes().vec();
      const at::Tensor by_y = rows(outer[i - 1]);
      if (context->needs_input_grad(0)) {
        by_x = by_x.defined() ? by_x.addmm_(by_y, saved[i]) : by_y.mm(saved[i]);
      }
      if (context->needs_input_grad(i)) {
        gradients[i] = by_y.t().mm(rows(saved[0]));
      }
      if (biased && context->needs_input_grad(maps + i)) {
        gradients[maps + i] = by_y.sum(0);
      }
    }
    if (by_x.defined()) {
      shape.back() = by_x.size(-1);
      by_x = by_x.view(shape);
    }
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> run_linears(const std::vector<Linear>& maps, const at::Tensor& x) {
  const auto biased =
      std::ranges::count_if(maps, [](const Linear& map) { return map.bias.defined(); });
  if (!at::GradMode::is_enabled() || !x.requires_grad() ||
      (biased != 0 && biased != std::ssize(maps))) {
    std::vector<at::Tensor> results;
    for (const Linear& map : maps) {
      results.push_back(map(x));
    }
    return results;
  }
  check_stop();
  std::vector<at::Tensor> tensors{x};
  for (const Linear& map : maps) {
    tensors.push_back(map.input_major ? map.weight.t() : map.weight);
  }
  for (const Linear& map : maps) {
    if (biased != 0) {
      tensors.push_back(map.bias);
    }
  }
  return LinearsOfOneInput::apply(at::TensorList(tensors), std::ssize(maps));
}

at::Tensor Norm::offset_weight() const {
  return weight_offset != 0.0 ? weight + weight_offset : weight;
}

at::Tensor Norm::operator()(const at::Tensor& x) const { return apply(x, offset_weight()); }

at::Tensor Norm::apply(const at::Tensor& x, const at::Tensor& scale) const {
  const std::vector<std::int64_t> width = {x.size(-1)};
  const auto fused_scale = heads.empty() ? if_defined(scale) : std::nullopt;
  if (kind == NormKind::kRmsNorm && heads.empty() && can_fuse_rms_norm(x, scale)) {
    return fused_rms_norm(x, scale, epsilon);
  }
  const at::Tensor normal = kind == NormKind::kRmsNorm
                                ? at::rms_norm(x, width, fused_scale, epsilon)
                                : at::layer_norm(x, width, fused_scale, if_defined(bias), epsilon);
  return heads.empty() ? normal : normal * at::stack(heads).unsqueeze(1);  // [H, 1, d]
}

NormedSum Norm::add(const at::Tensor& x, const at::Tensor& update) const {
  const at::Tensor weights = offset_weight();
  if (kind == NormKind::kRmsNorm && heads.empty() && can_fuse_rms_norm(x, weights) &&
      update.device() == x.device() && update.scalar_type() == x.scalar_type()) {
    return fused_add_rms_norm(x, update, weights, epsilon);
  }
  const at::Tensor sum = x + update;
  return {sum, apply(sum, weights)};
}

at::Tensor tensor_or_none(const std::string& name, const Parameters& parameters) {
  return name.empty() ? at::Tensor() : parameters.at(name);
}

Linear make_linear(const LinearTensors& names, const Parameters& parameters) {
  if (!names.present()) {
    return {};
  }
  return {parameters.at(names.weight), tensor_or_none(names.bias, parameters), names.input_major};
}

Norm make_norm(const NormTensors& names, const ModelSpec& spec, const Parameters& parameters) {
  return {tensor_or_none(names.weight, parameters), tensor_or_none(names.bias, parameters),
          spec.norm, spec.norm_epsilon, spec.norm_weight_offset};
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu: return at::silu(x);
    case Activation::kGeluErf: return at::gelu(x, "none");
    case Activation::kGeluTanh: return at::gelu(x, "tanh");
    case Activation::kRelu: return at::relu(x);
    case Activation::kReluSquared: return at::relu(x).square();
  }
  throw_usage("activation {} is unknown", static_cast<int>(activation));
}

at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up) {
  return can_fuse_gated_activation(activation, gate, up)
             ? fused_gated_activation(activation, gate, up)
             : activate(activation, gate) * up;
}

at::Tensor gated_halves(Activation activation, const at::Tensor& gate_up) {
  const std::int64_t width = gate_up.size(-1) / 2;
  return gated(activation, gate_up.narrow(-1, 0, width), gate_up.narrow(-1, width, width));
}

}  // namespace regroup
