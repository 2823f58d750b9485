// Layers with parameters, in their stored layout: linear maps and norms.
//
// Shapes: D the width of what is normalised.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/rms_norm.h"

namespace regroup {

/// y = x Wᵀ + b with stored weights.
struct Linear {
  at::Tensor weight;  ///< [out, in], or [in, out] where input_major
  at::Tensor bias;    ///< [out], or undefined
  bool input_major = false;

  bool present() const { return weight.defined(); }
  at::Tensor operator()(const at::Tensor& x) const;
};

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
