#include "tests/converter/pooling/small_attention.h"

#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>

namespace regroup {
namespace {

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous().flatten();
  const auto* first = flat.const_data_ptr<double>();
  return {first, first + flat.numel()};
}

DenseLinear random_linear(std::int64_t outputs, std::int64_t inputs, bool bias,
                          RandomNumbers& random) {
  DenseLinear linear{
      outputs, inputs, numbers_of(random({outputs, inputs}) / std::sqrt(inputs)), {}};
  if (bias) {
    linear.bias = numbers_of(random({outputs}));
  }
  return linear;
}

at::Tensor view_of(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble);
}

// [T, D] -> [heads, T, d]
at::Tensor project(const DenseLinear& linear, const at::Tensor& inputs, std::int64_t head_dim) {
  at::Tensor features =
      at::matmul(inputs, view_of(linear.weight, {linear.outputs, linear.inputs}).t());
  if (!linear.bias.empty()) {
    features = features + view_of(linear.bias, {linear.outputs});
  }
  return features.view({inputs.size(0), -1, head_dim}).transpose(0, 1);
}

// Plane p rotates by position · 0.7 / (p + 1).
at::Tensor rotated(const at::Tensor& heads, const HeadBasis& basis) {
  at::Tensor result = heads.clone();
  const at::Tensor positions = at::arange(heads.size(1), heads.options());
  for (std::size_t p = 0; p < basis.rope_planes.size(); ++p) {
    const auto [a, b] = basis.rope_planes[p];
    const at::Tensor angle = positions * (0.7 / static_cast<double>(p + 1));
    const at::Tensor x = heads.select(2, a), y = heads.select(2, b);
    result.select(2, a).copy_(x * angle.cos() - y * angle.sin());
    result.select(2, b).copy_(x * angle.sin() + y * angle.cos());
  }
  return result;
}

}  // namespace

RandomNumbers::RandomNumbers(std::uint64_t seed)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

at::Tensor RandomNumbers::operator()(std::vector<std::int64_t> shape) {
  return at::randn(shape, generator_, at::kDouble);
}

AttentionHeads random_heads(const SmallSizes& sizes, RandomNumbers& random) {
  AttentionHeads heads;
  heads.query_heads = sizes.query_heads;
  heads.kv_heads = sizes.kv_heads;
  heads.head_dim = sizes.head_dim;
  const std::int64_t d = sizes.head_dim;
  heads.q = random_linear(sizes.query_heads * d, sizes.width, sizes.biases, random);
  heads.k = random_linear(sizes.kv_heads * d, sizes.width, sizes.biases, random);
  heads.v = random_linear(sizes.kv_heads * d, sizes.width, sizes.biases, random);
  heads.o = random_linear(sizes.width, sizes.query_heads * d, sizes.biases, random);
  return heads;
}

at::Tensor weight_of(DenseLinear& linear, std::int64_t head_dim) {
  return view_of(linear.weight, {linear.outputs / head_dim, head_dim, linear.inputs});
}

at::Tensor bias_of(DenseLinear& linear, std::int64_t head_dim) {
  return view_of(linear.bias, {linear.outputs / head_dim, head_dim});
}

at::Tensor output_of(AttentionHeads& heads) {
  return view_of(heads.o.weight, {heads.o.outputs, heads.query_heads, heads.head_dim});
}

InputMoments random_moments(std::int64_t width, RandomNumbers& random) {
  const at::Tensor root = random({width, width}) / std::sqrt(width);
  return {numbers_of(random({width}) / 2), {}, numbers_of(at::matmul(root, root.t()))};
}

namespace {

at::Tensor normalised(const at::Tensor& heads, const DenseLinear& norm, double offset) {
  if (norm.weight.empty()) {
    return heads;
  }
  const at::Tensor weight = view_of(norm.weight, {norm.outputs}) + offset;
  if (norm.outputs == heads.size(2)) {  // each head
    return heads / heads.square().mean(2, true).sqrt() * weight;
  }
  return heads / heads.square().mean({0, 2}, true).sqrt() *
         weight.view({heads.size(0), 1, heads.size(2)});
}

}  // namespace

at::Tensor attend(const AttentionHeads& heads, const HeadBasis& basis, const at::Tensor& inputs) {
  const std::int64_t copies = heads.query_heads / heads.kv_heads;
  const auto projected = [&](const DenseLinear& linear, const DenseLinear& norm) {
    return rotated(normalised(project(linear, inputs, heads.head_dim), norm, heads.norm_offset),
                   basis);
  };
  const at::Tensor q = projected(heads.q, heads.q_norm);
  const at::Tensor k = projected(heads.k, heads.k_norm).repeat_interleave(copies, 0);
  const at::Tensor v = project(heads.v, inputs, heads.head_dim).repeat_interleave(copies, 0);
  const at::Tensor hidden = at::ones({inputs.size(0), inputs.size(0)}, at::kBool).triu(1);
  const at::Tensor scores = at::matmul(q, k.transpose(1, 2)).masked_fill(hidden, -1e30);
  const at::Tensor mixed = at::matmul(scores.softmax(-1), v);  // [H, T, d]
  const at::Tensor weight =
      view_of(heads.o.weight, {heads.o.outputs, heads.query_heads, heads.head_dim});
  const at::Tensor result = at::einsum("hta,eha->te", {mixed, weight});
  return heads.o.bias.empty() ? result : result + view_of(heads.o.bias, {heads.o.outputs});
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace regroup
