// Sums of gradients that are delivered while others are still computed.
#include <cmath>
#include <map>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <catch2/catch_test_macros.hpp>

#include "formats/base/error.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

at::Tensor leaf(double value, at::ScalarType type = at::kFloat) {
  return at::full({1}, value, type).requires_grad_();
}

struct Taken {
  std::vector<std::size_t> order;
  std::map<std::size_t, double> sums;
  std::map<std::size_t, at::ScalarType> types;

  SumTaker taker() {
    return [this](std::size_t parameter, const at::Tensor& sum) {
      order.push_back(parameter);
      sums[parameter] = sum.item<double>();
      types[parameter] = sum.scalar_type();
    };
  }
};

}  // namespace

TEST_CASE("a complete sum is delivered before the gradients of earlier layers", "[uptrain]") {
  const at::Tensor first = leaf(2), second = leaf(3), third = leaf(5);
  GradientSum gradients({first, second, third});
  gradients.add((first * second * third).sum());  // 15, 10, 6
  Taken taken;
  gradients.add_last(((first * second).square() * third).sum(), taken.taker());
  REQUIRE(taken.order.size() == 3);
  CHECK(taken.order.front() == 2);
  CHECK(taken.sums[0] == 15 + 2 * 2 * 9 * 5);
  CHECK(taken.sums[1] == 10 + 2 * 4 * 3 * 5);
  CHECK(taken.sums[2] == 6 + 36);
  CHECK(gradients.sums().empty());
  CHECK_FALSE(first.grad().defined());
  gradients.add((first + second + third).sum());  // these are not delivered
  CHECK(taken.order.size() == 3);
  CHECK(gradients.sums()[0].item<double>() == 1);
}

TEST_CASE("a tensor used twice is delivered once with its whole gradient", "[uptrain]") {
  const at::Tensor tied = leaf(3), between = leaf(2);
  GradientSum gradients({tied, between});
  Taken taken;
  gradients.add_last((tied * between * tied).sum(), taken.taker());
  CHECK(taken.order.size() == 2);
  CHECK(taken.sums[0] == 2 * 3 * 2);
  CHECK(taken.sums[1] == 9);
}

TEST_CASE("delivered sums have the precision of kept ones", "[uptrain]") {
  const at::Tensor narrow = leaf(3, at::kBFloat16), wide = leaf(2, at::kDouble);
  GradientSum gradients({narrow, wide});
  const auto loss = [&] { return (narrow.to(at::kDouble) * wide).sum(); };
  Taken taken;
  gradients.add_last(loss(), taken.taker());
  CHECK(taken.sums[0] == 2);
  CHECK(taken.types[0] == at::kFloat);
  gradients.add(loss());
  gradients.add_last(loss(), taken.taker());
  CHECK(taken.sums[0] == 2 + 2);
  CHECK(taken.sums[1] == 3 + 3);
  CHECK(taken.types[0] == at::kFloat);
  CHECK(taken.types[1] == at::kDouble);
}

TEST_CASE("an exception in the callback ends the pass and leaves no hooks", "[uptrain]") {
  const at::Tensor weight = leaf(2);
  GradientSum gradients({weight});
  const auto fail = [](std::size_t, const at::Tensor&) { throw_environment("lost"); };
  CHECK_THROWS_AS(gradients.add_last(weight.square().sum(), fail), Error);
  gradients.add(weight.square().sum());
  CHECK(gradients.sums()[0].item<double>() == 4);
}

TEST_CASE("a parameter that the loss does not use is refused with and without delivery",
          "[uptrain]") {
  const at::Tensor used = leaf(2), unused = leaf(3);
  GradientSum gradients({used, unused});
  Taken taken;
  CHECK_THROWS_AS(gradients.add(used.sum()), c10::Error);
  CHECK_THROWS_AS(gradients.add_last(used.sum(), taken.taker()), c10::Error);
}

TEST_CASE("the norm of a large tensor on the CPU does not lose small squares", "[uptrain]") {
  // One sum in fp32 of as many squares is too small by about a thousandth.
  constexpr std::int64_t kParts = 30, kElements = 1'000'000;
  const at::Tensor gradient =
      at::randn({kParts, kElements}, at::make_generator<at::CPUGeneratorImpl>(7), at::kFloat);
  double squares = 0.0;
  for (std::int64_t part = 0; part < kParts; ++part) {
    squares += gradient[part].to(at::kDouble).square().sum().item<double>();
  }
  const at::Tensor norm = global_norm({gradient, gradient});
  CHECK(norm.scalar_type() == at::kFloat);
  CHECK(std::abs(norm.item<double>() / std::sqrt(2 * squares) - 1.0) < 1e-5);
}

}  // namespace regroup
