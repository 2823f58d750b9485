#include <cmath>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "formats/base/error.h"
#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {
namespace {

struct LossAndGradient {
  double loss;
  at::Tensor gradient;
};

LossAndGradient fused(const at::Tensor& logits, const at::Tensor& targets, double scale) {
  const at::Tensor loss = at::zeros({}, at::kFloat);
  const at::Tensor gradient = logits.clone();
  add_fused_cross_entropy(loss, gradient, targets, scale, /*with_gradient=*/true);
  return {loss.item<double>(), gradient};
}

// LibTorch's cross entropy in fp64.
LossAndGradient reference(const at::Tensor& logits, const at::Tensor& targets, double scale) {
  const at::Tensor input = logits.to(at::kDouble).requires_grad_();
  const at::Tensor loss = at::cross_entropy_loss(input, targets, {}, at::Reduction::Sum) * scale;
  return {loss.item<double>(), torch::autograd::grad({loss}, {input}).front()};
}

}  // namespace

TEST_CASE("the fused cross-entropy and its gradient equal LibTorch's", "[uptrain]") {
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 2.5e-3});
  const std::int64_t vocabulary = GENERATE(1, 37, 5000);
  CAPTURE(type, vocabulary);
  const at::Tensor logits = (at::randn({23, vocabulary}) * 5.0).to(type);
  const at::Tensor targets = at::randint(vocabulary, {23});
  REQUIRE(can_fuse_cross_entropy(logits));
  const LossAndGradient expected = reference(logits, targets, 0.25);
  const LossAndGradient found = fused(logits, targets, 0.25);
  CHECK(std::abs(found.loss - expected.loss) <= 1e-6 * std::abs(expected.loss));
  CHECK(found.gradient.scalar_type() == type);
  // With a vocabulary of one token the gradient is 0.
  CHECK((vocabulary == 1 ? found.gradient.abs().max().item<double>() == 0.0
                         : relative_error(found.gradient, expected.gradient) < tolerance));
  const LossAndGradient other = fused(logits, (targets + 1).remainder(vocabulary), 0.25);
  CHECK((vocabulary == 1 || relative_error(other.gradient, expected.gradient) > 0.1));
}

TEST_CASE("the fused cross-entropy adds to a loss and keeps the logits if no gradient is needed",
          "[uptrain]") {
  const at::Tensor logits = at::tensor({0.0F, 0.0F, 0.0F, 0.0F}).view({2, 2});
  const at::Tensor before = logits.clone();
  const at::Tensor loss = at::full({}, 1.0F);
  add_fused_cross_entropy(loss, logits, at::tensor({0L, 1L}), 0.5, /*with_gradient=*/false);
  CHECK(std::abs(loss.item<double>() - 1.69314718) < 1e-6);  // 1 + (log 2 + log 2) / 2
  CHECK(at::equal(logits, before));
}

TEST_CASE("the fused cross-entropy does not depend on the number of threads", "[uptrain]") {
  const at::Tensor logits = at::randn({50, 1001}).to(at::kBFloat16);
  const at::Tensor targets = at::randint(1001, {50});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const LossAndGradient alone = fused(logits, targets, 1.0);
  at::set_num_threads(3);
  const LossAndGradient together = fused(logits, targets, 1.0);
  at::set_num_threads(before);
  CHECK(alone.loss == together.loss);
  CHECK(at::equal(alone.gradient, together.gradient));
}

TEST_CASE("the fused cross-entropy propagates NaN and refuses tokens outside the vocabulary",
          "[uptrain]") {
  at::Tensor logits = at::randn({2, 8});
  logits.select(0, 1).select(0, 3).fill_(NAN);
  const LossAndGradient found = fused(logits, at::tensor({0L, 1L}), 1.0);
  CHECK(std::isnan(found.loss));
  CHECK(found.gradient.select(0, 1).isnan().all().item<bool>());
  CHECK_FALSE(found.gradient.select(0, 0).isnan().any().item<bool>());
  CHECK_THROWS_AS(fused(logits, at::tensor({0L, 8L}), 1.0), Error);
  CHECK_THROWS_AS(fused(logits, at::tensor({-1L, 0L}), 1.0), Error);
  CHECK_FALSE(can_fuse_cross_entropy(logits.to(at::kDouble)));
}

}  // namespace regroup
