#include "uptrain/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unflatten.h>

namespace regroup {

namespace {

const auto kWide = at::TensorOptions().dtype(at::kDouble);

// theta^(-2i/R): [R/2].
at::Tensor plain_frequencies(double theta, std::int64_t rotary_dim) {
  const at::Tensor exponents =
      at::arange(0, rotary_dim, 2, kWide) * (-1.0 / static_cast<double>(rotary_dim));
  return at::pow(theta, exponents);
}

// "Dynamic NTK": the base grows with the length once that exceeds the model's positions.
at::Tensor dynamic_frequencies(const RopeSpec& spec, std::int64_t length) {
  const auto dimensions = static_cast<double>(spec.rotary_dim);
  const double stretch = static_cast<double>(length) / spec.scaling.original_positions;
  if (stretch <= 1.0) {
    return plain_frequencies(spec.theta, spec.rotary_dim);
  }
  const double factor = spec.scaling.factor;
  const double growth =
      std::pow(factor * stretch - (factor - 1.0), dimensions / (dimensions - 2.0));
  return plain_frequencies(spec.theta * growth, spec.rotary_dim);
}

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended.
at::Tensor llama3_frequencies(const RopeScaling& scaling, const at::Tensor& plain) {
  const double low = scaling.low_frequency_factor;
  const double high = scaling.high_frequency_factor;
  const at::Tensor turns = plain * (scaling.original_positions / (2.0 * std::numbers::pi));
  const at::Tensor kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
  return plain * ((1.0 - kept) / scaling.factor + kept);
}

// YaRN, "NTK by parts" (Peng et al., https://arxiv.org/abs/2309.00071, section 3.2).
at::Tensor yarn_frequencies(const RopeSpec& spec, const at::Tensor& plain) {
  const RopeScaling& scaling = spec.scaling;
  const auto dimensions = static_cast<double>(spec.rotary_dim);
  // The dimension whose frequency makes `turns` turns over the original positions.
  const auto dimension_of = [&](double turns) {
    return dimensions * std::log(scaling.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(spec.theta));
  };
  double low = dimension_of(scaling.beta_fast);
  double high = dimension_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dimensions - 1.0);
  high += low == high ? 0.001 : 0.0;
  const at::Tensor divided =
      ((at::arange(plain.size(0), kWide) - low) / (high - low)).clamp(0.0, 1.0);
  return plain * (divided / scaling.factor + (1.0 - divided));
}

at::Tensor frequencies_of(const RopeSpec& spec, std::int64_t length) {
  const at::Tensor plain = plain_frequencies(spec.theta, spec.rotary_dim);
  switch (spec.scaling.kind) {
    case RopeScaling::Kind::kNone: return plain;
    case RopeScaling::Kind::kLinear: return plain / spec.scaling.factor;
    case RopeScaling::Kind::kDynamic: return dynamic_frequencies(spec, length);
    case RopeScaling::Kind::kLlama3: return llama3_frequencies(spec.scaling, plain);
    case RopeScaling::Kind::kYarn: return yarn_frequencies(spec, plain);
  }
  return plain;
}

}  // namespace

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t length,
                          const at::TensorOptions& options) {
  const at::Tensor angles =
      at::outer(at::arange(length, kWide), frequencies_of(spec, length));  // [T, R/2]
  const double factor = spec.scaling.attention_factor;
  return {(angles.cos() * factor).to(options), (angles.sin() * factor).to(options),
          spec.interleaved};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t half = table.cosine.size(-1);
  const at::Tensor turning = x.narrow(-1, 0, 2 * half);
  const at::Tensor pairs = table.interleaved ? turning.unflatten(-1, {half, 2}) : at::Tensor();
  const at::Tensor first = table.interleaved ? pairs.select(-1, 0) : turning.narrow(-1, 0, half);
  const at::Tensor second =
      table.interleaved ? pairs.select(-1, 1) : turning.narrow(-1, half, half);
  const at::Tensor turned_first = first * table.cosine - second * table.sine;
  const at::Tensor turned_second = second * table.cosine + first * table.sine;
  const std::vector<at::Tensor> turned = {turned_first, turned_second};
  std::vector<at::Tensor> parts = {table.interleaved ? at::stack(turned, -1).flatten(-2)
                                                     : at::cat(turned, -1)};
  const std::int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) {
    parts.push_back(x.narrow(-1, 2 * half, rest));
  }
  return rest > 0 ? at::cat(parts, -1) : parts.front();
}

}  // namespace regroup
