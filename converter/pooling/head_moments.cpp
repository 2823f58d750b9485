#include "converter/pooling/head_moments.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>

namespace regroup {

BasisIndices::BasisIndices(const HeadBasis& basis, c10::Device device)
    : free(at::tensor(basis.free).to(device)), head_dim(basis.head_dim()) {
  std::vector<std::int64_t> first, second;
  for (const auto& [x, y] : basis.rope_planes) {
    first.push_back(x);
    second.push_back(y);
  }
  a = at::tensor(first).to(device);
  b = at::tensor(second).to(device);
}

namespace {

constexpr std::int64_t kBlock = 512;  // columns at a time

// Returns rows · T for rows [R, D], where T + Tᵀ = C [D, D]: T holds the blocks below C's diagonal
// blocks and half of the diagonal ones. This takes half the work of rows · C.
at::Tensor times_half(const at::Tensor& rows, const at::Tensor& covariance,
                      const std::atomic<bool>* stop) {
  const std::int64_t width = covariance.size(0);
  at::Tensor result = at::empty_like(rows);
  for (std::int64_t begin = 0; begin < width; begin += kBlock) {
    check_not_stopped(stop);
    const std::int64_t size = std::min(kBlock, width - begin), end = begin + size;
    const at::Tensor columns = covariance.narrow(1, begin, size);
    at::Tensor block = at::mm(rows.narrow(1, begin, size), columns.narrow(0, begin, size) / 2);
    block.addmm_(rows.narrow(1, end, width - end), columns.narrow(0, end, width - end));
    result.narrow(1, begin, size).copy_(block);
  }
  return result;
}

at::Tensor half_of(const HeadMaps& maps, const MomentTensors& inputs,
                   const std::atomic<bool>* stop) {
  if (!inputs.covariance.defined()) {
    return maps.weight * (inputs.variance / 2);
  }
  return times_half(maps.weight.view({-1, inputs.mean.size(0)}), inputs.covariance, stop)
      .view(maps.weight.sizes());
}

// P + Pᵀ + m mᵀ for P [..., r, r] and means m [..., r].
at::Tensor with_transpose(const at::Tensor& half, const at::Tensor& mean) {
  at::Tensor result = mean.unsqueeze(-1) * mean.unsqueeze(-2);
  return result.add_(half).add_(half.transpose(-1, -2));
}

// These features of `count` heads. Returns a view if they are all features.
at::Tensor features_of(const at::Tensor& heads, const at::Tensor& features, std::int64_t first,
                       std::int64_t count) {
  const at::Tensor part = heads.narrow(0, first, count);
  return features.size(0) == heads.size(1) ? part : part.index_select(1, features);
}

}  // namespace

at::Tensor tensor_of(const std::vector<double>& values, std::vector<std::int64_t> shape,
                     c10::Device device) {
  return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble).to(device);
}

void choose_vector_kernels() {
  static const at::Tensor chosen = at::sqrt(at::ones({1}, at::kDouble));
}

void check_not_stopped(const std::atomic<bool>* stop) {
  if (stop != nullptr && *stop) {
    throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
  }
}

HeadMaps::HeadMaps(const DenseLinear& linear, std::int64_t head_dim, c10::Device device)
    : weight(
          tensor_of(linear.weight, {linear.outputs / head_dim, head_dim, linear.inputs}, device)) {
  if (!linear.bias.empty()) {
    bias = tensor_of(linear.bias, {linear.outputs / head_dim, head_dim}, device);
  }
}

MomentTensors::MomentTensors(const InputMoments& moments, c10::Device device)
    : mean(tensor_of(moments.mean, {moments.width()}, device)) {
  if (moments.covariance.empty()) {
    variance = tensor_of(moments.variance, {moments.width()}, device);
  } else {
    covariance = tensor_of(moments.covariance, {moments.width(), moments.width()}, device);
  }
}

AttentionTensors::AttentionTensors(const AttentionHeads& heads, c10::Device device)
    : q(heads.q, heads.head_dim, device),
      k(heads.k, heads.head_dim, device),
      v(heads.v, heads.head_dim, device),
      o(tensor_of(heads.o.weight, {heads.o.outputs, heads.query_heads, heads.head_dim}, device)) {}

at::Tensor mean_of(const HeadMaps& maps, const MomentTensors& inputs) {
  const at::Tensor mean = at::matmul(maps.weight, inputs.mean);
  return maps.bias.defined() ? mean + maps.bias : mean;
}

HeadMoments::HeadMoments(const HeadMaps& maps, const MomentTensors& inputs,
                         const at::Tensor& counts_mean, const std::atomic<bool>* stop)
    : maps_(maps),
      half_(half_of(maps_, inputs, stop)),
      mean_(regroup::mean_of(maps_, inputs) * counts_mean) {}

at::Tensor HeadMoments::covariances() const {
  const at::Tensor half = at::bmm(half_, maps_.weight.transpose(1, 2));
  return half + half.transpose(1, 2);
}

at::Tensor HeadMoments::powers() const {
  return covariances() + mean_.unsqueeze(2) * mean_.unsqueeze(1);
}

at::Tensor HeadMoments::free_gram(const BasisIndices& basis, std::int64_t first,
                                  std::int64_t count) const {
  const at::Tensor& features = basis.free;
  const std::int64_t f = features.size(0), rows = count * f;
  const auto part = [&](const at::Tensor& heads) {
    return features_of(heads, features, first, count).reshape({rows, -1});
  };
  return with_transpose(at::mm(part(half_), part(maps_.weight).t()),
                        part(mean_.unsqueeze(2)).squeeze(1))
      .view({count, f, count, f});
}

at::Tensor HeadMoments::plane_gram(const BasisIndices& basis, std::int64_t first,
                                   std::int64_t count) const {
  const at::Tensor both = at::cat({basis.a, basis.b});
  const std::int64_t planes = basis.a.size(0);
  // Both features of all heads, plane by plane: [P, 2·n, D].
  const auto part = [&](const at::Tensor& heads) {
    return heads.narrow(0, first, count)
        .index_select(1, both)
        .view({count, 2, planes, -1})
        .permute({2, 1, 0, 3})
        .reshape({planes, 2 * count, -1});
  };
  const at::Tensor gram = with_transpose(at::bmm(part(half_), part(maps_.weight).transpose(1, 2)),
                                         part(mean_.unsqueeze(2)).squeeze(2));
  const auto side = [&](std::int64_t row, std::int64_t column) {
    return gram.narrow(1, row * count, count).narrow(2, column * count, count);
  };
  return at::complex((side(0, 0) + side(1, 1)).contiguous(),
                     (side(0, 1) - side(1, 0)).contiguous());
}

}  // namespace regroup
