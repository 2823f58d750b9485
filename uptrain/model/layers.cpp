#include "uptrain/model/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>

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
