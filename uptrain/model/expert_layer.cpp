#include "uptrain/model/expert_layer.h"

#include <ATen/ops/linear.h>

#include "uptrain/model/layers.h"

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
  ExpertLayer layer;
  layer.router = parameters.at(names.router);
  layer.gate = tensors_called(names.gate, parameters);
  layer.fused_gate = names.fused_gate();
  if (!layer.fused_gate) {
    layer.up = tensors_called(names.up, parameters);
  }
  layer.down = tensors_called(names.down, parameters);
  layer.stacked = names.stacked;
  return layer;
}

at::Tensor run_experts(const ExpertLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                       const RoutingObserver& observer) {
  const at::Tensor tokens = x.flatten(0, 1);  // [B·T, D]
  const RoutedTokens routed = route(at::linear(tokens, layer.router), spec.routing);
  if (observer) {
    observer(sum_per_sequence(routed, x.size(0)));
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

}  // namespace regroup
