#include <cmath>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

constexpr std::int64_t kTiledBatch = 2, kTiledQueryHeads = 6;

struct Sizes {
  std::int64_t kv_heads, queries, keys, width;
  bool causal;
};

// Layout of projections: [B, T, n, d], viewed as [B, n, T, d].
at::Tensor random_heads(std::int64_t heads, std::int64_t length, std::int64_t width) {
  return at::randn({kTiledBatch, length, heads, width}).to(at::kBFloat16).transpose(1, 2);
}

Heads random_heads(const Sizes& sizes) {
  return {random_heads(kTiledQueryHeads, sizes.queries, sizes.width),
          random_heads(sizes.kv_heads, sizes.keys, sizes.width),
          random_heads(sizes.kv_heads, sizes.keys, sizes.width)};
}

// The output of `attend` for heads in `type`, and the gradients of q, k and v.
template <typename Function>
std::vector<at::Tensor> results_of(const Function& attend, const Heads& heads,
                                   const at::Tensor& outer, at::ScalarType type) {
  const auto leaf = [&](const at::Tensor& x) { return x.to(type).detach().requires_grad_(); };
  const Heads inputs = {leaf(heads.q), leaf(heads.k), leaf(heads.v)};
  const at::Tensor output = attend(inputs);
  std::vector<at::Tensor> results =
      torch::autograd::grad({output}, {inputs.q, inputs.k, inputs.v}, {outer.to(type)});
  results.push_back(output.detach());
  return results;
}

// LibTorch's attention with an explicit mask. In fp64 it is the reference.
at::Tensor plain(const Heads& heads, const TiledAttention& attention) {
  const std::int64_t queries = heads.q.size(2);
  const std::int64_t keys = heads.k.size(2);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  at::Tensor mask = at::full({queries, keys}, attention.causal ? -INFINITY : 0.0, options).triu(1);
  if (attention.bias.defined()) {
    mask = mask + attention.bias.to(at::kDouble);
  }
  return at::scaled_dot_product_attention(heads.q, heads.k, heads.v, mask.to(heads.q.scalar_type()),
                                          0.0, false, attention.scale, /*enable_gqa=*/true);
}

}  // namespace

TEST_CASE("tiled attention and its gradients equal LibTorch's", "[uptrain]") {
  // Tiles are 64 by 128. The sizes give full tiles, partial tiles and an odd last key.
  const Sizes sizes = GENERATE(Sizes{2, 64, 64, 16, true}, Sizes{2, 129, 129, 64, true},
                               Sizes{6, 300, 300, 80, true}, Sizes{1, 200, 200, 128, true},
                               Sizes{3, 70, 257, 96, false}, Sizes{2, 130, 33, 32, false});
  const bool biased = GENERATE(false, true);
  CAPTURE(sizes.queries, sizes.keys, sizes.width, biased);
  const Heads heads = random_heads(sizes);
  if (!can_attend_in_tiles(heads)) {
    SKIP("no bf16 products of tiles on this processor");
  }
  TiledAttention attention{.scale = 1.3 / std::sqrt(static_cast<double>(sizes.width)),
                           .causal = sizes.causal,
                           .bias = {}};
  if (biased) {
    attention.bias = (at::randn({1, kTiledQueryHeads, 1, 1}).abs() * at::arange(sizes.keys)) / 20;
  }
  const at::Tensor outer = random_heads(kTiledQueryHeads, sizes.queries, sizes.width);
  const auto expected =
      results_of([&](const Heads& x) { return plain(x, attention); }, heads, outer, at::kDouble);
  const auto found = results_of([&](const Heads& x) { return attend_in_tiles(x, attention); },
                                heads, outer, at::kBFloat16);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i].scalar_type() == at::kBFloat16);
    CHECK(relative_error(found[i], expected[i]) < 4e-3);  // bf16 has 8 bits of precision
    CHECK(relative_error(found[i], 1.02 * expected[i]) > 4e-3);
  }
}

TEST_CASE("tiled attention rounds no more than LibTorch's kernel", "[uptrain]") {
  const Heads heads = random_heads({2, 256, 256, 64, true});
  if (!can_attend_in_tiles(heads)) {
    SKIP("no bf16 products of tiles on this processor");
  }
  const TiledAttention attention{.scale = 0.125, .causal = true, .bias = {}};
  const at::Tensor outer = random_heads(kTiledQueryHeads, 256, 64);
  const auto kernel = [&](const Heads& x) {
    return at::scaled_dot_product_attention(x.q, x.k, x.v, {}, 0.0, true, 0.125, true);
  };
  const auto expected = results_of(kernel, heads, outer, at::kDouble);
  const auto usual = results_of(kernel, heads, outer, at::kBFloat16);
  const auto found = results_of([&](const Heads& x) { return attend_in_tiles(x, attention); },
                                heads, outer, at::kBFloat16);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_error(found[i], expected[i]) < 1.1 * relative_error(usual[i], expected[i]));
  }
}

TEST_CASE("tiled attention does not depend on the number of threads", "[uptrain]") {
  const Heads heads = random_heads({2, 190, 190, 32, true});
  if (!can_attend_in_tiles(heads)) {
    SKIP("no bf16 products of tiles on this processor");
  }
  const at::Tensor outer = random_heads(kTiledQueryHeads, 190, 32);
  const auto attend = [](const Heads& x) {
    return attend_in_tiles(x, {.scale = 0.2, .causal = true, .bias = {}});
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = results_of(attend, heads, outer, at::kBFloat16);
  at::set_num_threads(3);
  const auto together = results_of(attend, heads, outer, at::kBFloat16);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(at::equal(alone[i], together[i]));
  }
}

TEST_CASE("tiled attention masks later keys and propagates NaN", "[uptrain]") {
  Heads heads = random_heads({2, 128, 128, 16, true});
  if (!can_attend_in_tiles(heads)) {
    SKIP("no bf16 products of tiles on this processor");
  }
  const at::Tensor before =
      attend_in_tiles(heads, {.scale = 0.25, .causal = true, .bias = {}}).narrow(2, 0, 100).clone();
  heads.k.narrow(2, 100, 28).fill_(30.0);
  CHECK(at::equal(
      attend_in_tiles(heads, {.scale = 0.25, .causal = true, .bias = {}}).narrow(2, 0, 100),
      before));
  CHECK_FALSE(at::equal(
      attend_in_tiles(heads, {.scale = 0.25, .causal = false, .bias = {}}).narrow(2, 0, 100),
      before));
  heads.q.select(2, 70).fill_(NAN);
  const at::Tensor broken =
      attend_in_tiles(heads, {.scale = 0.25, .causal = true, .bias = {}}).isnan();
  CHECK(broken.select(2, 70).all().item<bool>());
  CHECK_FALSE(broken.narrow(2, 0, 70).any().item<bool>());
}

TEST_CASE("attention that tiles do not support uses LibTorch", "[uptrain]") {
  const Heads heads = random_heads({2, 64, 64, 16, true});
  CHECK_FALSE(can_attend_in_tiles(random_heads({2, 63, 64, 16, true})));
  CHECK_FALSE(can_attend_in_tiles(random_heads({2, 64, 64, 24, true})));
  CHECK_FALSE(can_attend_in_tiles(
      {heads.q.to(at::kFloat), heads.k.to(at::kFloat), heads.v.to(at::kFloat)}));
}

}  // namespace regroup
