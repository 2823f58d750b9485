// Soft-capped attention compared with its formula, and its gradients with autograd's.
#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/golden_case.h"
#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

constexpr double kCap = 1.5;

Heads random_capped_heads(std::int64_t length, std::int64_t groups, at::ScalarType type) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  const auto draw = [&](std::int64_t heads) {
    return (at::randn({2, heads, length, 8}, generator, at::TensorOptions(at::kDouble)) * 2.0)
        .to(type)
        .requires_grad_();
  };
  return {draw(4), draw(groups), draw(groups)};
}

// The formula, one product of all queries and keys.
at::Tensor by_formula(const Heads& heads, double cap, double scale,
                      std::optional<std::int64_t> window) {
  const std::int64_t copies = heads.q.size(1) / heads.k.size(1);
  const at::Tensor k = heads.k.repeat_interleave(copies, 1),
                   v = heads.v.repeat_interleave(copies, 1);
  const at::Tensor scores = at::matmul(heads.q, k.transpose(2, 3)) * scale;
  const at::Tensor places = at::arange(heads.q.size(2), at::kLong);
  const at::Tensor distance = places.unsqueeze(1) - places;
  at::Tensor hidden = distance < 0;
  if (window) {
    hidden = hidden.logical_or(distance >= *window);
  }
  const at::Tensor weights = ((scores / cap).tanh() * cap)
                                 .masked_fill(hidden, -std::numeric_limits<double>::infinity())
                                 .softmax(-1);
  return at::matmul(weights, v);
}

}  // namespace

TEST_CASE("soft-capped attention and its gradients equal the formula's", "[uptrain]") {
  const std::int64_t groups = GENERATE(4, 2, 1), length = GENERATE(1, 7, 150);
  const auto window = GENERATE(std::optional<std::int64_t>(), std::optional<std::int64_t>(5),
                               std::optional<std::int64_t>(70));
  CAPTURE(groups, length, window.value_or(0));
  const Heads heads = random_capped_heads(length, groups, at::kDouble);
  const at::Tensor computed = attend_softcapped(
      heads, {.cap = kCap, .scale = std::nullopt, .causal = true, .window = window});
  const at::Tensor expected = by_formula(heads, kCap, 1.0 / std::sqrt(8.0), window);
  CHECK(largest_difference(computed.detach(), expected.detach()) < 1e-13);
  const at::Tensor outer = at::randn_like(computed);
  const std::vector<at::Tensor> leaves = {heads.q, heads.k, heads.v};
  const auto gradients = torch::autograd::grad({computed}, leaves, {outer});
  const auto reference = torch::autograd::grad({expected}, leaves, {outer});
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    CHECK(largest_difference(gradients[i], reference[i]) < 1e-12);
  }
  const at::Tensor without = by_formula(heads, 1e6, 1.0 / std::sqrt(8.0), window);
  CHECK((length == 1 || largest_difference(computed.detach(), without.detach()) > 1e-2));
}

TEST_CASE("soft-capped attention takes many queries in blocks", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  // 2 · 4 · 2300² scores are more than one block's.
  const Heads heads = random_capped_heads(2300, 2, at::kFloat);
  const at::Tensor computed = attend_softcapped(
      heads, {.cap = kCap, .scale = 0.25, .causal = true, .window = std::nullopt});
  CHECK(largest_difference(computed, by_formula(heads, kCap, 0.25, std::nullopt)) < 1e-4);
}

TEST_CASE("soft-capped attention in bf16 is as close as bf16 allows", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const Heads heads = random_capped_heads(40, 2, at::kBFloat16);
  const at::Tensor computed = attend_softcapped(
      heads, {.cap = kCap, .scale = std::nullopt, .causal = true, .window = std::nullopt});
  const Heads wide = {heads.q.to(at::kDouble), heads.k.to(at::kDouble), heads.v.to(at::kDouble)};
  const at::Tensor exact = by_formula(wide, kCap, 1.0 / std::sqrt(8.0), std::nullopt);
  CHECK(computed.scalar_type() == at::kBFloat16);
  CHECK(largest_difference(computed.to(at::kDouble), exact) < 5e-2);
}

}  // namespace regroup
