#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {
namespace {

constexpr std::int64_t kPositions = 37;

// Angles of kPositions positions for `turning` dimensions of each head.
RopeTable table_of(std::int64_t turning, bool interleaved, at::ScalarType type) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor angles =
      at::outer(at::arange(kPositions, wide), at::arange(1, turning / 2 + 1, wide) / 10.0);
  return {angles.cos().to(type), angles.sin().to(type), interleaved};
}

RopeTable widened(const RopeTable& table) {
  return {table.cosine.to(at::kDouble), table.sine.to(at::kDouble), table.interleaved};
}

struct Turned {
  at::Tensor y, by_x;
};

template <typename Function>
Turned turned_by(const Function& turn, const at::Tensor& x, const at::Tensor& outer) {
  const at::Tensor input = x.detach().requires_grad_();
  const at::Tensor y = turn(input);
  return {y.detach(), torch::autograd::grad({y}, {input}, {outer}).front()};
}

}  // namespace

TEST_CASE("the fused rotation and its gradient equal the separate operations", "[uptrain]") {
  const bool interleaved = GENERATE(false, true);
  const auto [width, turning] = GENERATE(std::pair{64, 64}, std::pair{80, 20}, std::pair{6, 2});
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 2.5e-3});
  CAPTURE(interleaved, width, turning, type);
  const at::Tensor x = at::randn({3, kPositions, 5, width}).to(type).transpose(1, 2);
  const at::Tensor outer = at::randn({3, 5, kPositions, width}).to(type);
  const RopeTable table = table_of(turning, interleaved, type);
  REQUIRE(can_fuse_rotation(x, table));
  // In fp64 rotate() uses LibTorch's operations.
  REQUIRE_FALSE(can_fuse_rotation(x.to(at::kDouble), widened(table)));
  const Turned expected =
      turned_by([&](const at::Tensor& input) { return rotate(input, widened(table)); },
                x.to(at::kDouble), outer.to(at::kDouble));
  const Turned found =
      turned_by([&](const at::Tensor& input) { return fused_rotation(input, table); }, x, outer);
  CHECK((found.y.scalar_type() == type && found.by_x.scalar_type() == type));
  CHECK(relative_error(found.y, expected.y) < tolerance);
  CHECK(relative_error(found.by_x, expected.by_x) < tolerance);
  RopeTable wrong = table;
  wrong.interleaved = !interleaved;
  // Two dimensions form one pair in both layouts.
  CHECK((turning == 2 || relative_error(fused_rotation(x, wrong), expected.y) > 0.1));
}

TEST_CASE("a quarter turn moves the first of a pair to the second", "[uptrain]") {
  const at::Tensor x = at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F}).view({1, 1, 1, 5});
  const at::Tensor zero = at::full({1, 2}, 0.0F);
  const at::Tensor one = at::full({1, 2}, 1.0F);
  CHECK(at::equal(fused_rotation(x, {zero, one, false}).view(-1),
                  at::tensor({-3.0F, -4.0F, 1.0F, 2.0F, 5.0F})));
  CHECK(at::equal(fused_rotation(x, {zero, one, true}).view(-1),
                  at::tensor({-2.0F, 1.0F, -4.0F, 3.0F, 5.0F})));
}

TEST_CASE("the fused rotation's result is contiguous for projections and independent of threads",
          "[uptrain]") {
  const RopeTable table = table_of(16, false, at::kBFloat16);
  const at::Tensor x = at::randn({2, 4, 16, kPositions}).to(at::kBFloat16).transpose(2, 3);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = fused_rotation(x, table);
  at::set_num_threads(3);
  const at::Tensor together = fused_rotation(x, table);
  at::set_num_threads(before);
  CHECK(alone.transpose(1, 2).is_contiguous());
  CHECK(at::equal(alone, together));
}

TEST_CASE("the fused rotation rounds no more than the separate operations and propagates NaN",
          "[uptrain]") {
  const RopeTable table = table_of(64, false, at::kBFloat16);
  const at::Tensor x = at::randn({2, 3, kPositions, 64}).to(at::kBFloat16);
  const at::Tensor first = x.narrow(-1, 0, 32);
  const at::Tensor second = x.narrow(-1, 32, 32);
  const at::Tensor expected = rotate(x.to(at::kDouble), widened(table));
  const at::Tensor separate = first * table.cosine - second * table.sine;
  CHECK(relative_error(fused_rotation(x, table).narrow(-1, 0, 32), expected.narrow(-1, 0, 32)) <
        relative_error(separate, expected.narrow(-1, 0, 32)));
  CHECK(fused_rotation(at::full_like(x, NAN), table).isnan().all().item<bool>());
}

}  // namespace regroup
