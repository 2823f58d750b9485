// Sharing a cache budget among layers, compared with an exhaustive search.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/kv_head_request.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

// The least cost of all choices within the budget.
double least_cost(const std::vector<std::vector<LayerOption>>& layers, std::uint64_t budget,
                  std::size_t layer = 0) {
  if (layer == layers.size()) {
    return 0.0;
  }
  double least = std::numeric_limits<double>::infinity();
  for (const LayerOption& option : layers[layer]) {
    if (option.bytes <= budget) {
      least = std::min(least, option.cost + least_cost(layers, budget - option.bytes, layer + 1));
    }
  }
  return least;
}

TEST_CASE("a budget is shared as well as by an exhaustive search", "[converter]") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> cost(0.0, 1.0);
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<std::vector<LayerOption>> layers;
    for (int layer = 0; layer < 5; ++layer) {
      layers.push_back({{1, 96, 2.0 + cost(random)},
                        {2, 192, 1.0 + cost(random)},
                        {4, 384, cost(random)},
                        {8, 768, 0.0}});
    }
    const std::uint64_t budget = 500 + 100 * static_cast<std::uint64_t>(trial);
    const std::vector<std::size_t> chosen = choose_within(layers, budget);
    double sum = 0.0;
    std::uint64_t bytes = 0;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      sum += layers[layer][chosen[layer]].cost;
      bytes += layers[layer][chosen[layer]].bytes;
    }
    CHECK(bytes <= budget);
    CHECK(std::abs(sum - least_cost(layers, budget)) < 1e-12);
  }
}

TEST_CASE("a large budget takes the cheapest choice and one that is too small is refused",
          "[converter]") {
  const std::vector<std::vector<LayerOption>> layers = {{{1, 10, 0.5}, {2, 20, 0.0}},
                                                        {{1, 10, 0.0}, {2, 20, 0.0}}};
  CHECK(choose_within(layers, 1000) == std::vector<std::size_t>{1, 0});
  CHECK(choose_within(layers, 20) == std::vector<std::size_t>{0, 0});
  CHECK_THAT(refusal_of([&] { choose_within(layers, 19); }),
             is_wrong_usage("0.01855 KiB", "0.01953 KiB"));
}

TEST_CASE("costs that are not finite or too large are refused", "[converter]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double cost : {std::nan(""), kInfinity, -kInfinity, 1e301}) {
    CAPTURE(cost);
    const std::vector<std::vector<LayerOption>> layers = {
        {{4, 40, 0.0}, {1, 10, 0.5}}, {{4, 40, 0.0}, {2, 20, cost}, {1, 10, 0.25}}};
    for (const std::uint64_t budget : {20U, 50U, 80U}) {
      CHECK_THAT(refusal_of([&] { choose_within(layers, budget); }),
                 is_bad_input("layer 1 with 2 kv heads"));
    }
  }
}

TEST_CASE("the budget holds for costs near the largest number", "[converter]") {
  const std::vector<std::vector<LayerOption>> layers(3, {{2, 20, 0.0}, {1, 10, 1e300}});
  const std::vector<std::size_t> chosen = choose_within(layers, 40);
  CHECK(std::count(chosen.begin(), chosen.end(), 1U) == 2);
}

}  // namespace
}  // namespace regroup
