#include "uptrain/layerwise/attention_fit.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>

#include "converter/pooling/solvers/head_moments.h"

namespace regroup {

ScaledLinear::ScaledLinear(const DenseLinear& linear, c10::Device device) {
  const at::Tensor wide = tensor_of(linear.weight, {linear.outputs, linear.inputs}, c10::kCPU);
  const double size = wide.square().mean().sqrt().item<double>();
  scale_ = size > 0.0 ? size : 1.0;
  weight_ = leaf_of(wide, device);
  if (!linear.bias.empty()) {
    bias_ = leaf_of(tensor_of(linear.bias, {linear.outputs}, c10::kCPU), device);
  }
}

Linear ScaledLinear::linear() const {
  return {weight_ * scale_, bias_.defined() ? bias_ * scale_ : at::Tensor()};
}

void ScaledLinear::add_parameters(const std::string& name,
                                  std::vector<Parameters::Entry>& entries) const {
  entries.push_back({name + ".weight", weight_});
  if (bias_.defined()) {
    entries.push_back({name + ".bias", bias_});
  }
}

void ScaledLinear::write_to(DenseLinear& linear) const {
  put(weight_, linear.weight);
  if (bias_.defined()) {
    put(bias_, linear.bias);
  }
}

at::Tensor ScaledLinear::leaf_of(const at::Tensor& wide, c10::Device device) const {
  return (wide / scale_).to(device, at::kFloat).contiguous().set_requires_grad(true);
}

void ScaledLinear::put(const at::Tensor& leaf, std::vector<double>& values) const {
  const at::Tensor wide = (leaf.detach().to(at::kCPU, at::kDouble) * scale_).contiguous();
  const double* first = wide.const_data_ptr<double>();
  std::copy(first, first + wide.numel(), values.begin());
}

AttentionFit::AttentionFit(const AttentionHeads& heads, const AttentionLayer& source,
                           const at::Tensor& query_order, c10::Device device)
    : q_(heads.q, device), k_(heads.k, device), v_(heads.v, device), o_(heads.o, device) {
  rest_.q_norm = source.q_norm;
  rest_.k_norm = source.k_norm;
  if (source.alibi) {
    rest_.alibi = source.alibi->in_order(query_order);
  }
  rest_.kv_heads = heads.kv_heads;
}

AttentionLayer AttentionFit::attention() const {
  AttentionLayer layer = rest_;
  layer.q = q_.linear();
  layer.k = k_.linear();
  layer.v = v_.linear();
  layer.o = o_.linear();
  return layer;
}

Parameters AttentionFit::parameters() const {
  std::vector<Parameters::Entry> entries;
  q_.add_parameters("q", entries);
  k_.add_parameters("k", entries);
  v_.add_parameters("v", entries);
  o_.add_parameters("o", entries);
  return Parameters(std::move(entries));
}

void AttentionFit::write_to(AttentionHeads& heads) const {
  q_.write_to(heads.q);
  k_.write_to(heads.k);
  v_.write_to(heads.v);
  o_.write_to(heads.o);
}

}  // namespace regroup
