#include "uptrain/ops/expert_routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/uptrain/golden_case.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinAbs;
using Balance = ExpertRouting::Balance;

// Scores whose softmax is these shares, fp64 [4, 3].
at::Tensor scores() {
  return at::tensor({0.5, 0.3, 0.2, 0.1, 0.6, 0.3, 0.2, 0.1, 0.7, 0.6, 0.3, 0.1}, at::kDouble)
      .view({4, 3})
      .log();
}

ExpertRouting two_of_three(bool normalised, double scale) {
  return {.experts = 3, .per_token = 2, .normalised = normalised, .scale = scale};
}

}  // namespace

TEST_CASE("tokens go to the experts with the greatest shares", "[uptrain]") {
  const RoutedTokens routed = route(scores(), two_of_three(false, 1.0));
  CHECK(routed.experts.equal(at::tensor({0, 1, 1, 2, 2, 0, 0, 1}, at::kLong).view({4, 2})));
  CHECK(largest_difference(
            routed.weights,
            at::tensor({0.5, 0.3, 0.6, 0.3, 0.7, 0.2, 0.6, 0.3}, at::kDouble).view({4, 2})) <
        1e-15);
  const RoutedTokens sums = route(scores(), two_of_three(true, 3.0));
  CHECK(largest_difference(sums.weights.select(0, 0),
                           at::tensor({3 * 0.625, 3 * 0.375}, at::kDouble)) < 1e-15);
}

TEST_CASE("experts get their tokens in one call each, and their results are weighted",
          "[uptrain]") {
  const at::Tensor x = at::randn({4, 5}, at::kDouble);
  const RoutedTokens routed = route(scores(), two_of_three(false, 1.0));
  std::vector<std::int64_t> counts;
  const at::Tensor mixed =
      mix_experts(x, routed, 3, [&](std::size_t expert, const at::Tensor& tokens) {
        counts.push_back(tokens.size(0));
        return tokens * (static_cast<double>(expert) + 1.0);
      });
  CHECK((counts == std::vector<std::int64_t>{3, 3, 2}));
  const at::Tensor factors = at::tensor(
      {0.5 * 1 + 0.3 * 2, 0.6 * 2 + 0.3 * 3, 0.7 * 3 + 0.2 * 1, 0.6 * 1 + 0.3 * 2}, at::kDouble);
  CHECK(largest_difference(mixed, x * factors.unsqueeze(1)) < 1e-15);
}

TEST_CASE("an expert without tokens has a gradient of zero", "[uptrain]") {
  const at::Tensor weights = at::randn({4, 5, 5}, at::kDouble).requires_grad_();
  const at::Tensor x = at::randn({4, 5}, at::kDouble);
  const RoutedTokens routed = route(scores(), two_of_three(false, 1.0));
  int calls = 0;
  const auto mixed = [&] {
    const std::vector<at::Tensor> each = weights.unbind(0);
    return mix_experts(x, routed, 4, [&](std::size_t expert, const at::Tensor& tokens) {
      ++calls;
      return at::linear(tokens, each[expert]);
    });
  };
  GradientSum gradients({weights});
  gradients.add(mixed().square().sum());
  CHECK(calls == 4);
  CHECK(gradients.sums()[0].select(0, 3).abs().max().item<double>() == 0.0);
  CHECK(gradients.sums()[0].select(0, 2).abs().max().item<double>() > 0.0);
  const at::NoGradGuard no_gradients;
  mixed();
  CHECK(calls == 4 + 3);
}

TEST_CASE("the load-balancing loss has the values of its three formulas", "[uptrain]") {
  // Two sequences of two tokens. Sums of shares: 0.6 0.9 0.5 and 0.8 0.4 0.8; choices: 1 2 1, 2
  // 1 1.
  ExpertRouting routing = two_of_three(false, 1.0);
  const RouterSums layer = sum_per_sequence(route(scores(), routing), 2);
  CHECK(layer.chosen.equal(at::tensor({1.0, 2.0, 1.0, 2.0, 1.0, 1.0}, at::kDouble).view({2, 3})));
  const auto loss = [&](Balance balance, const std::vector<RouterSums>& layers) {
    routing.balance = balance;
    return balance_loss(layers, routing).item<double>();
  };
  const double together = 1.4 * 3 + 1.3 * 3 + 1.3 * 2;
  CHECK_THAT(loss(Balance::kAllLayers, {layer}), WithinAbs(3 * together / 16, 1e-14));
  CHECK_THAT(loss(Balance::kEachLayer, {layer}), WithinAbs(3 * together / (2 * 16), 1e-14));
  const double apart = (0.6 * 1 + 0.9 * 2 + 0.5 * 1) + (0.8 * 2 + 0.4 * 1 + 0.8 * 1);
  CHECK_THAT(loss(Balance::kEachSequence, {layer}), WithinAbs(3 * apart / (2 * 2 * 4), 1e-14));
  // Another layer that chooses other experts, as many for each token.
  const RouterSums other = {layer.probabilities, layer.chosen.flip(1)};
  const double all = 2.8 * (3 + 2) + 2.6 * (3 + 3) + 2.6 * (2 + 3);
  CHECK_THAT(loss(Balance::kAllLayers, {layer, other}), WithinAbs(3 * all / 64, 1e-14));
  CHECK_THAT(loss(Balance::kEachLayer, {layer, layer}), WithinAbs(3 * together / 16, 1e-14));
  // Without the second sequence's second token.
  const RouterSums fewer = sum_per_sequence(
      route(scores(), routing), 2, at::tensor({1, 1, 1, 0}, at::kLong).view({2, 2}).to(at::kBool));
  CHECK(fewer.chosen.sum(1).equal(at::tensor({4.0, 2.0}, at::kDouble)));
  CHECK(fewer.probabilities[0].equal(layer.probabilities[0]));
  CHECK_THAT(fewer.probabilities[1].sum().item<double>(), WithinAbs(1.0, 1e-14));
}

}  // namespace regroup
