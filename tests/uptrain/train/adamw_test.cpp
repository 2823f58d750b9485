#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/uptrain/train/scalar.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinRel;

const OptimizerSettings kSettings{
    .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

OptimizerSettings with_moments(Precision precision) {
  OptimizerSettings settings = kSettings;
  settings.moments = precision;
  return settings;
}

MasterWeights named(const std::vector<at::Tensor>& tensors) {
  std::vector<Parameters::Entry> entries;
  for (const at::Tensor& tensor : tensors) {
    entries.push_back({"w" + std::to_string(entries.size()), tensor});
  }
  return MasterWeights(Parameters(std::move(entries)));
}

// One weight, updated by the formula in optimizer.cpp.
struct ByHand {
  double weight, first = 0, second = 0;
  void step(double gradient, double rate, double decay, int count) {
    first = 0.9 * first + 0.1 * gradient;
    second = 0.95 * second + 0.05 * gradient * gradient;
    weight -= rate * decay * weight;
    weight -= rate * (first / (1 - std::pow(0.9, count))) /
              (std::sqrt(second / (1 - std::pow(0.95, count))) + 1e-8);
  }
};

}  // namespace

TEST_CASE("AdamW takes gradients that are views of larger tensors", "[uptrain]") {
  const Precision precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const at::Tensor all = at::arange(20, at::kFloat).view({4, 5}) / 20 - 0.4;
  const auto updated = [&](const at::Tensor& gradient) {
    at::Tensor weight = at::full({4, 4}, 0.5, at::kFloat);
    const auto optimizer = make_optimizer(named({weight}), with_moments(precision));
    for (const at::Tensor& each : {gradient, at::full({4, 4}, 0.1, at::kFloat)}) {
      optimizer->step({each}, 0.01, at::full({}, 1.0), at::full({}, 0.0));
    }
    return weight;
  };
  for (const at::Tensor& view : {all.narrow(1, 0, 4), all.narrow(1, 1, 4).t()}) {
    const at::Tensor expected = updated(view.contiguous());
    CHECK(updated(view).equal(expected));
    CHECK_FALSE(updated(view.t().contiguous()).equal(expected));
  }
}

TEST_CASE("AdamW follows its formula and decays matrices only", "[uptrain]") {
  const at::Tensor matrix = at::full({2, 3}, 0.5, at::kDouble);
  const at::Tensor bias = at::full({3}, 0.5, at::kDouble);
  const auto optimizer = make_optimizer(named({matrix, bias}), kSettings);
  ByHand decayed{0.5};
  ByHand kept{0.5};
  for (int step = 1; step <= 5; ++step) {
    const double gradient = 0.3 * step - 0.8;
    const double rate = 0.01 / step;
    optimizer->step({at::full_like(matrix, gradient), at::full_like(bias, gradient)}, rate,
                    scalar(1), scalar(0));
    decayed.step(gradient, rate, 0.1, step);
    kept.step(gradient, rate, 0.0, step);
  }
  CHECK_THAT(matrix[1][2].item<double>(), WithinRel(decayed.weight, 1e-12));
  CHECK_THAT(bias[0].item<double>(), WithinRel(kept.weight, 1e-12));
  CHECK(matrix[1][2].item<double>() != bias[0].item<double>());
  CHECK(optimizer->state().back().value.item<double>() == 5.0);
}

TEST_CASE("AdamW divides gradients before it uses them", "[uptrain]") {
  const at::Tensor one = at::full({4, 4}, 0.5, at::kFloat);
  const at::Tensor other = one.clone();
  const auto divided = make_optimizer(named({one}), kSettings);
  const auto plain = make_optimizer(named({other}), kSettings);
  divided->step({at::full_like(one, 6.0)}, 0.1, scalar(4), scalar(0));
  plain->step({at::full_like(one, 1.5)}, 0.1, scalar(1), scalar(0));
  CHECK(one.equal(other));
  CHECK(divided->state().front().value.equal(plain->state().front().value));
}

TEST_CASE("AdamW with bf16 moments rounds them after computing the update in full precision",
          "[uptrain]") {
  const at::Tensor matrix = at::full({2, 3}, 0.5, at::kDouble);
  const at::Tensor bias = at::full({3}, 0.5, at::kDouble);
  const auto optimizer = make_optimizer(named({matrix, bias}), with_moments(Precision::kBf16));
  ByHand decayed{0.5};
  ByHand wide{0.5};
  const auto round = [](double value) { return scalar(value).to(at::kBFloat16).item<double>(); };
  for (int step = 1; step <= 5; ++step) {
    const double gradient = 0.3 * step - 0.8;
    optimizer->step({at::full_like(matrix, gradient), at::full_like(bias, gradient)}, 0.01,
                    scalar(1), scalar(0));
    decayed.step(gradient, 0.01, 0.1, step);
    decayed.first = round(decayed.first);
    decayed.second = round(decayed.second);
    wide.step(gradient, 0.01, 0.1, step);
  }
  CHECK_THAT(matrix[1][2].item<double>(), WithinRel(decayed.weight, 1e-9));
  CHECK_THAT(matrix[1][2].item<double>(), !WithinRel(wide.weight, 1e-6));
  CHECK(optimizer->state().front().value.scalar_type() == at::kBFloat16);
}

TEST_CASE("a skipped AdamW step changes nothing", "[uptrain]") {
  const at::Tensor weight = at::full({2, 2}, 0.5, at::kFloat);
  const auto optimizer =
      make_optimizer(named({weight}), with_moments(GENERATE(Precision::kFp32, Precision::kBf16)));
  optimizer->step({at::full_like(weight, 1.0)}, 0.1, scalar(1), scalar(0));
  const at::Tensor before = weight.clone();
  const at::Tensor moment = optimizer->state().front().value.clone();
  optimizer->step({at::full_like(weight, std::nan(""))}, 0.1, scalar(1), scalar(1));
  CHECK(weight.equal(before));
  CHECK(optimizer->state().front().value.equal(moment));
  CHECK(optimizer->state().back().value.item<double>() == 1.0);
}

TEST_CASE("gradients above the norm are clipped and others are unchanged", "[uptrain]") {
  const std::vector<at::Tensor> gradients{at::tensor({3.0}, at::kFloat),
                                          at::tensor({0.0, 4.0}, at::kFloat)};
  const at::Tensor norm = global_norm(gradients);
  CHECK(norm.item<double>() == 5.0);
  CHECK(clipping_divisor(norm, 2.5).item<double>() == 2.0);
  CHECK(clipping_divisor(norm, 5.0).item<double>() == 1.0);
  CHECK(clipping_divisor(norm, 100.0).item<double>() == 1.0);
  CHECK(clipping_divisor(norm, 0.0).item<double>() == 1.0);
}

}  // namespace regroup
