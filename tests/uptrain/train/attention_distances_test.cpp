// Attention by distance, compared with simple attentions whose distribution is known.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>

#include "uptrain/train/sensitivity.h"

namespace regroup {
namespace {

TEST_CASE("uniform attention is spread equally over each query's distances", "[uptrain]") {
  AttentionDistances distances(10);
  CHECK_FALSE(distances.any());
  const at::Tensor keys = at::randn({2, 1, 3, 4});
  distances.add({at::zeros({2, 2, 3, 4}), keys, keys}, {}, std::nullopt, {}, true);
  const at::Tensor shares = distances.shares();
  REQUIRE(shares.sizes() == at::IntArrayRef{2, 3});
  // Queries 0, 1 and 2 have 1, 2 and 3 keys.
  const double thirds[] = {(1.0 + 1.0 / 2 + 1.0 / 3) / 3, (1.0 / 2 + 1.0 / 3) / 3, 1.0 / 3 / 3};
  for (std::int64_t t = 0; t < 3; ++t) {
    CHECK(std::abs(shares[1][t].item<double>() - thirds[t]) < 1e-6);
  }
}

TEST_CASE("distances follow the scores and the mask and the scale", "[uptrain]") {
  // Keys grow along the sequence, so the newest gets the most attention, and more with a larger
  // scale.
  const at::Tensor queries = at::ones({1, 1, 3, 1});
  const at::Tensor keys = at::zeros({1, 1, 3, 1});
  keys[0][0][1] = 1.0;
  keys[0][0][2] = 2.0;
  const auto at_zero = [&](const at::Tensor& mask, double scale) {
    AttentionDistances distances(10);
    distances.add({queries, keys, keys}, mask, std::nullopt, {scale, std::nullopt}, true);
    return distances.shares()[0][0].item<double>();
  };
  const double e = std::exp(1.0);
  CHECK(std::abs(at_zero({}, 1.0) - (1.0 + e / (1 + e) + e * e / (1 + e + e * e)) / 3) < 1e-6);
  CHECK(at_zero({}, 3.0) > at_zero({}, 1.0));
  const at::Tensor hides_first = at::zeros({1, 1, 3, 3});
  hides_first[0][0][1][0] = hides_first[0][0][2][0] = -1e9;
  CHECK(std::abs(at_zero(hides_first, 1.0) - (1.0 + 1.0 + e / (1 + e)) / 3) < 1e-6);
}

TEST_CASE("keys after the query count where attention is not causal", "[uptrain]") {
  const at::Tensor keys = at::randn({1, 1, 3, 2});
  const auto shares = [&](std::optional<std::int64_t> window) {
    AttentionDistances distances(10);
    distances.add({at::zeros({1, 1, 3, 2}), keys, keys}, {}, window, {}, false);
    return distances.shares();
  };
  // Each of three queries has three keys: four pairs are neighbours, two are the ends.
  const double all[] = {3.0 / 9, 4.0 / 9, 2.0 / 9};
  // With a window of two, the queries at the ends have two keys.
  const double near[] = {(1.0 / 2 + 1.0 / 3 + 1.0 / 2) / 3, (1.0 / 2 + 2.0 / 3 + 1.0 / 2) / 3, 0.0};
  for (std::int64_t t = 0; t < 3; ++t) {
    CHECK(std::abs(shares(std::nullopt)[0][t].item<double>() - all[t]) < 1e-6);
    CHECK(std::abs(shares(2)[0][t].item<double>() - near[t]) < 1e-6);
  }
}

TEST_CASE("distances beyond the maximum are omitted", "[uptrain]") {
  AttentionDistances distances(2);
  const at::Tensor keys = at::randn({1, 1, 5, 2});
  distances.add({at::zeros({1, 1, 5, 2}), keys, keys}, {}, std::nullopt, {}, true);
  CHECK(distances.shares().size(1) == 2);
  CHECK(std::abs(distances.shares().sum().item<double>() - 1.0) < 1e-9);
}

}  // namespace
}  // namespace regroup
