// fp32 tensors in two halves: exact, with ties rounded away from zero.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include "uptrain/model/parameters.h"

namespace regroup {
namespace {

// Numbers of every exponent and sign: ties, the numbers next to them, and random bits.
at::Tensor numbers_of_all_kinds() {
  std::vector<std::uint32_t> bits{0, 0x80000000, 0x7F800000, 0xFF800000};  // zeros and infinities
  std::uint32_t random = 1;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    random = random * 1664525U + 1013904223U;
    for (const std::uint32_t low :
         {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU, random >> 16 | 1U}) {
      bits.push_back(high << 16 | low);
    }
  }
  std::vector<float> numbers;
  for (const std::uint32_t each : bits) {
    const auto number = std::bit_cast<float>(each);
    if (!std::isnan(number)) {
      numbers.push_back(number);
    }
  }
  return at::tensor(numbers, at::kFloat);
}

StateTensor split_copy(const at::Tensor& whole) {
  StateTensor tensor =
      split_tensor("w", at::zeros(whole.sizes(), at::TensorOptions(at::kBFloat16)));
  tensor.write(whole);
  return tensor;
}

// The nearest bf16 number, found among three by their distance.
double nearest_away(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number) & 0xFFFF0000U;
  const double low = std::bit_cast<float>(bits);
  const double high = std::bit_cast<float>(bits + 0x10000U);  // away from zero
  // Beyond the largest number the next one would be 2^128.
  const double next = std::isinf(high) ? std::copysign(0x1p128, number) : high;
  return std::abs(number - low) < std::abs(next - number) ? low : high;
}

}  // namespace

TEST_CASE("two halves are exactly the fp32 tensor", "[uptrain]") {
  const at::Tensor whole = numbers_of_all_kinds();
  REQUIRE(whole.numel() > 400'000);
  const StateTensor tensor = split_copy(whole);
  CHECK(tensor.type() == at::kFloat);
  CHECK(tensor.low.scalar_type() == at::kShort);
  CHECK(tensor.read().view(at::kInt).equal(whole.view(at::kInt)));
  const at::Tensor rounded = tensor.value.to(at::kFloat);
  const auto* numbers = whole.const_data_ptr<float>();
  const auto* values = rounded.const_data_ptr<float>();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    const bool finite = std::isfinite(numbers[i]);
    wrong += values[i] == (finite ? nearest_away(numbers[i]) : numbers[i]) ? 0 : 1;
  }
  CHECK(wrong == 0);
  // LibTorch rounds ties to even: half of the ties are different, and nothing else.
  const at::Tensor ties = whole.view(at::kInt).bitwise_and(0xFFFF).eq(0x8000);
  const at::Tensor other = whole.to(at::kBFloat16).ne(tensor.value);
  CHECK(other.logical_and(ties.logical_not()).sum().item<std::int64_t>() == 0);
  CHECK(other.sum().item<std::int64_t>() * 2 == ties.sum().item<std::int64_t>());
}

TEST_CASE("NaN stays NaN in both halves together and in the upper one", "[uptrain]") {
  const at::Tensor whole = at::empty({3}, at::kFloat);
  auto* bits = static_cast<std::uint32_t*>(whole.mutable_data_ptr());
  bits[0] = 0x7FFFFFFF;  // would round to -0
  bits[1] = 0xFFFFFFFF;
  bits[2] = 0x7F800001;  // would round to infinity
  const StateTensor tensor = split_copy(whole);
  CHECK(tensor.value.isnan().all().item<bool>());
  CHECK(tensor.read().isnan().all().item<bool>());
}

TEST_CASE("a tensor that becomes split keeps its value, and a whole one is written in place",
          "[uptrain]") {
  const at::Tensor weight = at::tensor({1.5, -0.25, 3e30}, at::kFloat).to(at::kBFloat16);
  const StateTensor tensor = split_tensor("w", weight);
  CHECK(tensor.read().equal(weight.to(at::kFloat)));
  const StateTensor whole{"w", at::tensor({1.0, 2.0}, at::kFloat)};
  CHECK(whole.read().is_same(whole.value));
  whole.write(at::tensor({3.0, 4.0}, at::kFloat));
  CHECK(whole.value[1].item<double>() == 4.0);
}

}  // namespace regroup
