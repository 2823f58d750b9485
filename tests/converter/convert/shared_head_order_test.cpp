// One head order for several layers, chosen by the sum of their losses.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "converter/convert/similar_grouping.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

// Every pair of heads in a group has a random cost that differs between layers.
struct Layers {
  std::int64_t heads = 0;
  std::vector<std::vector<double>> pairs;  // by layer: [heads, heads]
  std::vector<int> asked;                  // by layer

  Layers(std::int64_t count, std::size_t layers, unsigned seed)
      : heads(count), pairs(layers), asked(layers, 0) {
    std::mt19937 random(seed);
    for (std::vector<double>& layer : pairs) {
      layer.resize(static_cast<std::size_t>(heads * heads));
      for (double& pair : layer) {
        pair = 1.0 + static_cast<double>(random() % 1000) / 1000;
      }
    }
  }

  double& pair(std::size_t layer, std::int64_t a, std::int64_t b) {
    return pairs[layer][static_cast<std::size_t>(std::min(a, b) * heads + std::max(a, b))];
  }

  double loss(std::size_t layer, const HeadGroup& group) {
    double sum = 0.0;
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t j = i + 1; j < group.size(); ++j) {
        sum += pair(layer, group[i], group[j]);
      }
    }
    return sum;
  }

  double loss_in_order(std::size_t layer, const Heads& order, std::int64_t groups) {
    const std::int64_t members = heads / groups;
    double sum = 0.0;
    for (std::int64_t g = 0; g < groups; ++g) {
      sum += loss(layer, {order.begin() + g * members, order.begin() + (g + 1) * members});
    }
    return sum;
  }

  LayerLosses losses() {
    return [this](std::size_t layer, const std::vector<HeadGroup>& groups) {
      ++asked[layer];
      std::vector<double> found;
      for (const HeadGroup& group : groups) {
        found.push_back(loss(layer, group));
      }
      return found;
    };
  }
};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

Heads first_heads(std::int64_t count) {
  Heads heads(static_cast<std::size_t>(count));
  std::iota(heads.begin(), heads.end(), 0);
  return heads;
}

TEST_CASE("the best order of pairs for all layers equals an exhaustive search", "[converter]") {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    Layers layers(6, 3, seed);
    const SharedHeadOrder found = find_shared_head_order(6, {3, 3, 3}, layers.losses());
    double least = std::numeric_limits<double>::max();
    Heads order = first_heads(6);
    do {
      double sum = 0.0;
      for (const std::size_t layer : {0U, 1U, 2U}) {
        sum += layers.loss_in_order(layer, order, 3);
      }
      least = std::min(least, sum);
    } while (std::next_permutation(order.begin(), order.end()));
    CAPTURE(seed);
    CHECK(std::abs(sum_of(found.losses) - least) < 1e-9);
    CHECK(layers.asked == std::vector<int>{1, 1, 1});  // pairwise costs suffice
  }
}

TEST_CASE("reported losses are those of the order in each layer", "[converter]") {
  Layers layers(12, 2, 5);
  const SharedHeadOrder found = find_shared_head_order(12, {4, 4}, layers.losses());
  Heads sorted = found.order;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == first_heads(12));
  for (const std::size_t layer : {0U, 1U}) {
    CHECK(std::abs(found.losses[layer] - layers.loss_in_order(layer, found.order, 4)) < 1e-9);
    CHECK(std::abs(found.contiguous_losses[layer] -
                   layers.loss_in_order(layer, first_heads(12), 4)) < 1e-9);
    CHECK(layers.asked[layer] <= 40);
  }
  CHECK(sum_of(found.losses) < sum_of(found.contiguous_losses));
}

TEST_CASE("the layer with larger losses determines the shared order", "[converter]") {
  Layers layers(4, 2, 6);
  for (std::vector<double>& layer : layers.pairs) {
    std::fill(layer.begin(), layer.end(), 1.0);
  }
  layers.pair(0, 0, 3) = layers.pair(0, 1, 2) = 0.8;
  layers.pair(1, 0, 2) = layers.pair(1, 1, 3) = 0.5;
  CHECK(find_shared_head_order(4, {2, 2}, layers.losses()).order == Heads{0, 2, 1, 3});
  // Layer 0 alone.
  CHECK(find_shared_head_order(4, {2}, layers.losses()).order == Heads{0, 3, 1, 2});
}

TEST_CASE("a layer with fewer groups merges the groups of layers with more", "[converter]") {
  Layers layers(8, 2, 7);
  const SharedHeadOrder found = find_shared_head_order(8, {2, 4}, layers.losses());
  const Heads pairs = find_shared_head_order(8, {4}, [&](std::size_t, const auto& groups) {
                        return layers.losses()(1, groups);
                      }).order;
  std::map<std::int64_t, std::int64_t> partner;
  for (std::size_t i = 0; i < 8; i += 2) {
    partner[pairs[i]] = pairs[i + 1];
  }
  for (std::size_t i = 0; i < 8; i += 2) {
    CHECK(partner.at(found.order[i]) == found.order[i + 1]);
  }
  // The minimum over the three ways to merge four pairs.
  double least = std::numeric_limits<double>::max();
  for (const Heads& joined : {Heads{0, 1, 2, 3}, Heads{0, 2, 1, 3}, Heads{0, 3, 1, 2}}) {
    Heads order;
    for (const std::int64_t pair : joined) {
      order.push_back(pairs[static_cast<std::size_t>(2 * pair)]);
      order.push_back(pairs[static_cast<std::size_t>(2 * pair + 1)]);
    }
    least = std::min(least, layers.loss_in_order(0, order, 2));
  }
  CHECK(std::abs(found.losses[0] - least) < 1e-9);
}

TEST_CASE("group counts that do not divide each other give consecutive heads of the order",
          "[converter]") {
  Layers layers(12, 2, 8);
  const SharedHeadOrder found = find_shared_head_order(12, {4, 6}, layers.losses());
  CHECK(std::abs(found.losses[0] - layers.loss_in_order(0, found.order, 4)) < 1e-9);
  CHECK(sum_of(found.losses) <= sum_of(found.contiguous_losses));
}

TEST_CASE("heads stay contiguous if no order loses less", "[converter]") {
  Layers layers(6, 2, 9);
  for (const std::size_t layer : {0U, 1U}) {
    for (const std::int64_t head : {0, 2, 4}) {
      layers.pair(layer, head, head + 1) = 0.1;
    }
  }
  const SharedHeadOrder found = find_shared_head_order(6, {3, 3}, layers.losses());
  CHECK(found.order == first_heads(6));
  CHECK(found.losses == found.contiguous_losses);
  CHECK(find_shared_head_order(6, {1, 1}, layers.losses()).order == first_heads(6));
}

}  // namespace
}  // namespace regroup
