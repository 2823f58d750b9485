#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/model/layers.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {
namespace {

struct Gated {
  at::Tensor y, by_gate, by_up;
};

template <typename Function>
Gated gated_by(const Function& function, const at::Tensor& gate, const at::Tensor& up,
               const at::Tensor& outer) {
  const at::Tensor one = gate.detach().requires_grad_();
  const at::Tensor other = up.detach().requires_grad_();
  const at::Tensor y = function(one, other);
  const auto gradients = torch::autograd::grad({y}, {one, other}, {outer});
  return {y.detach(), gradients[0], gradients[1]};
}

// The separate operations.
Gated separate(Activation activation, const at::Tensor& gate, const at::Tensor& up,
               const at::Tensor& outer, at::ScalarType type) {
  return gated_by(
      [&](const auto& one, const auto& other) { return activate(activation, one) * other; },
      gate.to(type), up.to(type), outer.to(type));
}

Gated fused(Activation activation, const at::Tensor& gate, const at::Tensor& up,
            const at::Tensor& outer) {
  return gated_by(
      [&](const auto&... parts) { return fused_gated_activation(activation, parts...); }, gate, up,
      outer);
}

}  // namespace

TEST_CASE("the fused gated activation and its gradients equal the separate operations",
          "[uptrain]") {
  const Activation activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 2.5e-3});
  CAPTURE(static_cast<int>(activation), type);
  const at::Tensor gate = (at::randn({3, 41, 100}) * 3.0).to(type);
  const at::Tensor up = at::randn({3, 100, 41}).to(type).transpose(1, 2);  // not contiguous
  const at::Tensor outer = at::randn({3, 41, 100}).to(type);
  REQUIRE(can_fuse_gated_activation(activation, gate, up));
  const Gated expected = separate(activation, gate, up, outer, at::kDouble);
  const Gated found = fused(activation, gate, up, outer);
  CHECK((found.y.scalar_type() == type && found.by_gate.scalar_type() == type));
  CHECK(relative_error(found.y, expected.y) < tolerance);
  CHECK(relative_error(found.by_gate, expected.by_gate) < tolerance);
  CHECK(relative_error(found.by_up, expected.by_up) < tolerance);
  const Activation wrong =
      activation == Activation::kSilu ? Activation::kGeluTanh : Activation::kSilu;
  CHECK(relative_error(fused(wrong, gate, up, outer).by_gate, expected.by_gate) > 0.01);
}

TEST_CASE("the fused gated activation rounds no more in bf16 than the separate operations",
          "[uptrain]") {
  const at::Tensor gate = at::randn({5, 1000}).to(at::kBFloat16);
  const at::Tensor up = at::randn({5, 1000}).to(at::kBFloat16);
  const at::Tensor outer = at::randn({5, 1000}).to(at::kBFloat16);
  const Gated expected = separate(Activation::kSilu, gate, up, outer, at::kDouble);
  const Gated usual = separate(Activation::kSilu, gate, up, outer, at::kBFloat16);
  const Gated found = fused(Activation::kSilu, gate, up, outer);
  CHECK(relative_error(found.y, expected.y) < relative_error(usual.y, expected.y));
  CHECK(relative_error(found.by_gate, expected.by_gate) <
        relative_error(usual.by_gate, expected.by_gate));
  CHECK(relative_error(found.by_up, expected.by_up) < relative_error(usual.by_up, expected.by_up));
}

TEST_CASE("saturated gates and NaN are computed correctly", "[uptrain]") {
  const Activation activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const at::Tensor gate = at::tensor({1000.0F, -1000.0F, 0.0F, NAN});
  const at::Tensor up = at::tensor({3.0F, 3.0F, 3.0F, 3.0F});
  const Gated found = fused(activation, gate, up, at::tensor({1.0F, 1.0F, 1.0F, 1.0F}));
  CHECK(at::equal(found.y.narrow(0, 0, 3), at::tensor({3000.0F, 0.0F, 0.0F})));
  CHECK(at::equal(found.by_gate.narrow(0, 0, 3), at::tensor({3.0F, 0.0F, 1.5F})));
  CHECK(at::equal(found.by_up.narrow(0, 0, 3), at::tensor({1000.0F, 0.0F, 0.0F})));
  for (const at::Tensor& each : {found.y, found.by_gate, found.by_up}) {
    CHECK(each.isnan().select(0, 3).item<bool>());
  }
}

TEST_CASE("the fused gated activation does not depend on the number of threads", "[uptrain]") {
  const at::Tensor gate = at::randn({70, 1001}).to(at::kBFloat16);
  const at::Tensor up = at::randn({70, 1001}).to(at::kBFloat16);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Gated alone = fused(Activation::kSilu, gate, up, gate);
  at::set_num_threads(3);
  const Gated together = fused(Activation::kSilu, gate, up, gate);
  at::set_num_threads(before);
  CHECK(at::equal(alone.y, together.y));
  CHECK(at::equal(alone.by_gate, together.by_gate));
  CHECK(at::equal(alone.by_up, together.by_up));
}

TEST_CASE("gated activations that cannot be fused use LibTorch", "[uptrain]") {
  const at::Tensor x = at::randn({2, 16});
  CHECK_FALSE(can_fuse_gated_activation(Activation::kGeluErf, x, x));
  CHECK_FALSE(can_fuse_gated_activation(Activation::kSilu, x.to(at::kDouble), x.to(at::kDouble)));
  CHECK_FALSE(can_fuse_gated_activation(Activation::kSilu, x, x.to(at::kBFloat16)));
}

}  // namespace regroup
