#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "uptrain/ops/fused_ops.h"

namespace regroup {
namespace {

constexpr double kNormEpsilon = 1e-5;

struct Norms {
  at::Tensor y, by_x, by_weight;
};

// The value and the gradients of the sum of y².
template <typename Function>
Norms norms_by(const Function& function, const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor input = x.detach().requires_grad_();
  const at::Tensor scale = weight.detach().requires_grad_();
  const at::Tensor y = function(input, scale);
  const auto gradients = torch::autograd::grad({y.square().sum()}, {input, scale});
  return {y.detach(), gradients[0], gradients[1]};
}

// LibTorch's separate operations in fp64.
Norms reference(const at::Tensor& x, const at::Tensor& weight) {
  return norms_by(
      [](const at::Tensor& input, const at::Tensor& scale) {
        return at::rms_norm(input, {input.size(-1)}, scale, kNormEpsilon);
      },
      x.to(at::kDouble), weight.to(at::kDouble));
}

Norms fused(const at::Tensor& x, const at::Tensor& weight) {
  return norms_by([](const auto&... parts) { return fused_rms_norm(parts..., kNormEpsilon); }, x,
                  weight);
}

bool near(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  const at::Tensor difference = (a.to(at::kDouble) - b).norm();
  return (difference / b.norm()).item<double>() < tolerance;
}

}  // namespace

TEST_CASE("fused RMSNorm and its gradients equal the separate operations", "[uptrain]") {
  const auto width = GENERATE(1, 7, 64, 100);
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 4e-3});
  CAPTURE(width, type);
  // More rows than a block, and not a multiple of it.
  const at::Tensor x = at::randn({3, 47, width}, at::kDouble).to(type);
  const at::Tensor weight = (at::randn({width}, at::kDouble) + 1.0).to(type);
  REQUIRE(can_fuse_rms_norm(x, weight));
  const Norms expected = reference(x, weight);
  const Norms found = fused(x, weight);
  CHECK((found.y.scalar_type() == type && found.by_weight.scalar_type() == type));
  CHECK(near(found.y, expected.y, tolerance));
  CHECK(near(found.by_weight, expected.by_weight, 2 * tolerance));
  // With one number per row, only the effect of epsilon remains.
  CHECK((width == 1 || near(found.by_x, expected.by_x, 2 * tolerance)));
  CHECK_FALSE(near(found.y, 1.02 * expected.y, tolerance));
}

TEST_CASE("fused RMSNorm accepts strided tensors and propagates NaN", "[uptrain]") {
  const at::Tensor x = at::randn({8, 5, 16}).transpose(0, 1);
  const at::Tensor weight = at::randn({32}).slice(0, 0, 32, 2);
  const Norms found = fused(x, weight);
  CHECK(near(found.by_x, reference(x, weight).by_x, 1e-6));
  const at::Tensor broken = at::full({2, 16}, NAN).to(at::kBFloat16);
  CHECK(fused_rms_norm(broken, weight.slice(0, 0, 16).to(at::kBFloat16), kNormEpsilon)
            .isnan()
            .all()
            .item<bool>());
}

TEST_CASE("norms that cannot be fused use LibTorch", "[uptrain]") {
  const at::Tensor x = at::randn({2, 16});
  CHECK_FALSE(can_fuse_rms_norm(x, at::Tensor()));
  CHECK_FALSE(can_fuse_rms_norm(x, at::randn({16}, at::kDouble)));
  CHECK_FALSE(can_fuse_rms_norm(x.to(at::kDouble), at::randn({16}, at::kDouble)));
}

}  // namespace regroup
