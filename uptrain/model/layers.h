// Layers that blocks are made of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/expert_routing.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {

// The experts of one layer, with their router.
//
// Shapes: B sequences, T positions, D hidden size, E experts.

/// The parameters, in their stored layout.
struct ExpertLayer {
  at::Tensor router;                       ///< [E, D]
  std::vector<at::Tensor> gate, up, down;  ///< [out, in] of each expert, or one [E, out, in]
  bool stacked = false;
  bool fused_gate = false;  ///< `gate` is gate‖up, and `up` is empty

  bool present() const { return router.defined(); }
};

/// Observes the routing of a layer in one pass.
struct RoutingObserver {
  std::function<void(const RouterSums&)> call = {};
  at::Tensor counted = {};  ///< bool [B, T], the tokens that the sums are over; undefined: all

  explicit operator bool() const { return call != nullptr; }
};

/// The experts with those tensor names; absent if they are.
ExpertLayer make_expert_layer(const ExpertTensors& names, const Parameters& parameters);

/// The weighted sum of each token's experts. x: [B, T, D] -> [B, T, D]. Calls the observer if there
/// is one.
at::Tensor run_experts(const ExpertLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                       const RoutingObserver& observer);

// Layers with parameters, in their stored layout: linear maps and norms.
//
// Shapes: D the width of what is normalised.

/// y = x Wᵀ + b with stored weights.
struct Linear {
  at::Tensor weight;  ///< [out, in], or [in, out] where input_major
  at::Tensor bias;    ///< [out], or undefined
  bool input_major = false;

  bool present() const { return weight.defined(); }
  at::Tensor operator()(const at::Tensor& x) const;
};

/// The results of several maps of one input, in their order: x [..., in] -> [..., out] each. The
/// same numbers as each map by itself. In the backward pass each product adds its share of the
/// gradient of x to the sum of those before it, which saves a pass over memory for each.
std::vector<at::Tensor> run_linears(const std::vector<Linear>& maps, const at::Tensor& x);

/// LayerNorm or RMSNorm over the last dimension, computed in fp32 at least.
struct Norm {
  at::Tensor weight;  ///< [D], or undefined: none is applied
  at::Tensor bias;    ///< [D], or undefined
  NormKind kind = NormKind::kRmsNorm;
  double epsilon = 1e-5;
  double weight_offset = 0.0;          ///< added to the weight
  std::vector<at::Tensor> heads = {};  ///< instead of one weight: [d] for each of [B, H, T, d]

  at::Tensor operator()(const at::Tensor& x) const;
  /// x + update, and its norm.
  NormedSum add(const at::Tensor& x, const at::Tensor& update) const;

 private:
  at::Tensor offset_weight() const;
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale) const;
};

/// The tensor of that name, or an undefined one for an empty name.
at::Tensor tensor_or_none(const std::string& name, const Parameters& parameters);

/// The linear map with those tensor names; absent if they are.
Linear make_linear(const LinearTensors& names, const Parameters& parameters);

/// A norm of the model's kind with those tensors, if there are any.
Norm make_norm(const NormTensors& names, const ModelSpec& spec, const Parameters& parameters);

at::Tensor activate(Activation activation, const at::Tensor& x);

/// activation(gate) · up, as in a gated MLP.
at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up);

/// The same with both in one tensor, gate‖up.
at::Tensor gated_halves(Activation activation, const at::Tensor& gate_up);

}  // namespace regroup
