#include "uptrain/ops/attention.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "uptrain/ops/tiled_attention.h"

namespace regroup {
namespace {

// q and k get this many additional dimensions. The kernels need a multiple of eight.
constexpr std::int64_t kExtra = 8;

// Positions are split into hi·256 + lo, so that each half is exact in bf16.
constexpr std::int64_t kPositionBase = 256;

std::optional<at::Tensor> optional_mask(const at::Tensor& mask) {
  return mask.defined() ? std::optional(mask) : std::nullopt;
}

at::Tensor scaled_attention(const Heads& heads, const at::Tensor& mask, std::optional<double> scale,
                            bool causal = true) {
  const bool grouped = heads.q.size(1) != heads.k.size(1);
  return at::scaled_dot_product_attention(heads.q, heads.k, heads.v, optional_mask(mask),
                                          /*dropout_p=*/0.0,
                                          /*is_causal=*/causal && !mask.defined(), scale,
                                          /*enable_gqa=*/grouped);
}

// [T, 8]: hi, lo, hi, lo, 0, 0, 0, 0 of each position.
at::Tensor key_dimensions(const at::Tensor& position, const at::TensorOptions& options) {
  const at::Tensor high = position.div(kPositionBase, "floor").to(options.dtype());
  const at::Tensor low = position.remainder(kPositionBase).to(options.dtype());
  const at::Tensor zero = at::zeros_like(low);
  return at::stack({high, low, high, low, zero, zero, zero, zero}, -1);
}

}  // namespace

at::Tensor split_heads(const at::Tensor& features, std::int64_t head_dim) {
  const std::int64_t heads = features.size(-1) / head_dim;
  return features.view({features.size(0), features.size(1), heads, head_dim}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), -1});
}

Heads split_fused_heads(const at::Tensor& features, Packing packing, std::int64_t query_heads,
                        std::int64_t kv_heads, std::int64_t head_dim) {
  const std::int64_t batch = features.size(0);
  const std::int64_t length = features.size(1);
  if (packing == Packing::kPerGroup) {
    const std::int64_t queries = query_heads / kv_heads;
    // [B, T, G, n + 2, d]: n query heads, the key and the value of each group
    const at::Tensor groups = features.view({batch, length, kv_heads, queries + 2, head_dim});
    const at::Tensor q =
        groups.narrow(3, 0, queries).reshape({batch, length, query_heads, head_dim});
    return {q.transpose(1, 2), groups.select(3, queries).transpose(1, 2),
            groups.select(3, queries + 1).transpose(1, 2)};
  }
  // [B, T, H + 2G, d]: all query heads, all keys, all values
  const at::Tensor all = split_heads(features, head_dim);
  return {all.narrow(1, 0, query_heads), all.narrow(1, query_heads, kv_heads),
          all.narrow(1, query_heads + kv_heads, kv_heads)};
}

at::Tensor sliding_window_mask(std::int64_t length, std::int64_t window,
                               const at::TensorOptions& options) {
  const double hidden = -std::numeric_limits<double>::infinity();
  const at::Tensor all = at::full({length, length}, hidden, options);
  // -inf above the diagonal, and from `window` below it on.
  const at::Tensor mask = all.triu(1) + all.tril(-window);
  return mask.view({1, 1, length, length});
}

at::Tensor attend(const Heads& heads, const at::Tensor& mask, std::optional<double> scale,
                  bool causal) {
  if (!mask.defined() && can_attend_in_tiles(heads)) {
    const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(heads.q.size(3))));
    return attend_in_tiles(heads, {factor, causal, {}});
  }
  return scaled_attention(heads, mask, scale, causal);
}

at::Tensor symmetric_alibi_bias(const at::Tensor& slopes, std::int64_t length,
                                const at::TensorOptions& options) {
  const at::Tensor position = at::arange(length, slopes.options());
  const at::Tensor distance = (position.unsqueeze(1) - position).abs();  // [T, T]
  return (slopes * -distance).to(options.requires_grad(false));
}

Alibi::Alibi(std::span<const double> slopes, std::int64_t head_dim,
             const at::TensorOptions& options, std::optional<double> scale)
    : scale_(scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim)))) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exact =
      at::tensor(at::ArrayRef<double>(slopes.data(), slopes.size()), wide).view({1, -1, 1, 1});
  const bool fp64 = c10::typeMetaToScalarType(options.dtype()) == at::kDouble;
  slopes_ = exact.to(options.dtype(fp64 ? at::kDouble : at::kFloat));
  // slope/scale = coarse + fine, where the coarse part is exact in bf16. With both in bf16, the sum
  // has 16 correct bits.
  const at::Tensor scaled = exact.squeeze(-1) / scale_;
  const at::Tensor coarse = scaled.to(at::kBFloat16).to(at::kDouble);
  const at::Tensor fine = scaled - coarse;
  const at::Tensor zero = at::zeros_like(coarse);
  const auto base = static_cast<double>(kPositionBase);
  query_dimensions_ =
      at::stack({coarse * base, coarse, fine * base, fine, zero, zero, zero, zero}, -1).to(options);
}

Alibi Alibi::in_order(const at::Tensor& order) const {
  Alibi other = *this;
  other.slopes_ = slopes_.index_select(1, order);
  other.query_dimensions_ = query_dimensions_.index_select(1, order);
  return other;
}

AlibiForm Alibi::best_form(at::Device device) {
  return device.is_cpu() ? AlibiForm::kBias : AlibiForm::kExtraDimensions;
}

at::Tensor Alibi::attend(const Heads& heads, const at::Tensor& mask, AlibiForm form) const {
  if (mask.defined() || form == AlibiForm::kExtraDimensions) {
    return attend_with_extra_dimensions(heads, mask);
  }
  return attend_with_bias(heads);
}

at::Tensor Alibi::bias(const at::Tensor& positions) const { return slopes_ * positions; }

at::Tensor Alibi::attend_with_bias(const Heads& heads) const {
  const at::Tensor by_key = bias(at::arange(heads.k.size(2), slopes_.options()));  // [1, H, 1, T]
  if (can_attend_in_tiles(heads)) {
    return attend_in_tiles(heads, {scale_, /*causal=*/true, by_key});
  }
  // The general entry point refuses a bias together with is_causal.
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      heads.q, heads.k, heads.v, /*dropout_p=*/0.0, /*is_causal=*/true, by_key, scale_));
}

Heads Alibi::extended(const Heads& heads, const at::Tensor& positions) const {
  const auto extend = [](const at::Tensor& x, const at::Tensor& extra) {
    return at::cat({x, extra.expand({x.size(0), x.size(1), x.size(2), kExtra})}, -1);
  };
  const at::Tensor dimensions = key_dimensions(positions, heads.k.options());
  return {extend(heads.q, query_dimensions_), extend(heads.k, dimensions),
          at::constant_pad_nd(heads.v, {0, kExtra})};
}

at::Tensor Alibi::attend_with_extra_dimensions(const Heads& heads, const at::Tensor& mask) const {
  const at::Tensor positions = at::arange(heads.k.size(2), heads.k.options().dtype(at::kLong));
  return scaled_attention(extended(heads, positions), mask, scale_).narrow(-1, 0, heads.v.size(-1));
}

}  // namespace regroup
