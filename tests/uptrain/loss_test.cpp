#include "uptrain/loss.h"

#include <cmath>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/golden_case.h"

namespace regroup {
namespace {

constexpr std::int64_t kTokens = 23, kWidth = 8, kVocab = 31;

struct Subject {
  at::Tensor hidden, head, targets;
};

Subject make_subject(at::ScalarType type) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  return {at::randn({kTokens, kWidth}, generator, wide).to(type).requires_grad_(true),
          at::randn({kVocab, kWidth}, generator, wide).to(type).requires_grad_(true),
          at::randint(kVocab, {kTokens}, generator, at::TensorOptions(at::kLong))};
}

at::Tensor reference_loss(const Subject& subject) {
  return at::cross_entropy_loss(at::linear(subject.hidden, subject.head), subject.targets);
}

}  // namespace

TEST_CASE("chunked loss and its gradients equal LibTorch's cross entropy", "[uptrain]") {
  const std::int64_t tokens_per_chunk = GENERATE(1, 4, 22, 23, 1000);
  CAPTURE(tokens_per_chunk);
  const Subject subject = make_subject(at::kDouble);
  const at::Tensor loss =
      next_token_loss(subject.hidden, subject.head, subject.targets, tokens_per_chunk * kVocab);
  const at::Tensor reference = reference_loss(subject);
  CHECK(largest_difference(loss.detach(), reference.detach()) <= 1e-13);
  // An outer factor reaches the gradients.
  const auto computed = torch::autograd::grad({loss * 3.0}, {subject.hidden, subject.head});
  const auto expected = torch::autograd::grad({reference * 3.0}, {subject.hidden, subject.head});
  CHECK(largest_difference(computed[0], expected[0]) <= 1e-13);
  CHECK(largest_difference(computed[1], expected[1]) <= 1e-13);
}

TEST_CASE("chunked loss is the same without gradients", "[uptrain]") {
  const Subject subject = make_subject(at::kFloat);
  const double with_gradients =
      next_token_loss(subject.hidden, subject.head, subject.targets, 100).item<double>();
  const at::NoGradGuard no_gradients;
  CHECK(next_token_loss(subject.hidden, subject.head, subject.targets, 100).item<double>() ==
        with_gradients);
}

TEST_CASE("chunked loss of a bf16 model is summed in fp32", "[uptrain]") {
  const Subject subject = make_subject(at::kBFloat16);
  const at::Tensor loss = next_token_loss(subject.hidden, subject.head, subject.targets, 100);
  CHECK(loss.scalar_type() == at::kFloat);
  CHECK(largest_difference(loss.detach(), reference_loss(subject).detach()) <= 0.05);
  const auto computed = torch::autograd::grad({loss}, {subject.hidden, subject.head});
  CHECK(computed[0].scalar_type() == at::kBFloat16);
  CHECK(computed[1].scalar_type() == at::kBFloat16);
}

TEST_CASE("loss of a model that knows nothing is the logarithm of its vocabulary", "[uptrain]") {
  const Subject subject = make_subject(at::kFloat);
  const at::NoGradGuard no_gradients;
  CHECK_THAT(next_token_loss(subject.hidden * 0.0, subject.head, subject.targets).item<double>(),
             Catch::Matchers::WithinAbs(std::log(static_cast<double>(kVocab)), 1e-6));
}

}  // namespace regroup
