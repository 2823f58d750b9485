// Balanced partitions of heads by the costs of their groups.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "converter/heads/heads.h"

namespace regroup {
namespace {

// Relative. Sums of at most 6 costs ≥ 0 in two orders: 5 additions each, with half an epsilon each.
constexpr double kSumRounding = 5 * std::numeric_limits<double>::epsilon();

// Points in a plane. A group costs the squared distances from its mean, weighted by the position of
// the mean: not a sum over pairs.
struct Points {
  std::vector<double> x, y;

  Points(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < count; ++i) {
      x.push_back(static_cast<double>(random() % 1000));
      y.push_back(static_cast<double>(random() % 1000));
    }
  }

  double cost(const HeadGroup& group) const {
    double mean_x = 0.0, mean_y = 0.0, sum = 0.0;
    for (const std::int64_t i : group) {
      mean_x += x[static_cast<std::size_t>(i)] / static_cast<double>(group.size());
      mean_y += y[static_cast<std::size_t>(i)] / static_cast<double>(group.size());
    }
    for (const std::int64_t i : group) {
      sum += std::pow(x[static_cast<std::size_t>(i)] - mean_x, 2) +
             std::pow(y[static_cast<std::size_t>(i)] - mean_y, 2);
    }
    return sum * (1.0 + mean_x / 2000);
  }

  GroupCosts costs(std::int64_t* asked = nullptr) const {
    return [this, asked](const std::vector<HeadGroup>& groups) {
      std::vector<double> found;
      for (const HeadGroup& group : groups) {
        found.push_back(cost(group));
        if (asked != nullptr && group.size() > 2) {
          ++*asked;
        }
      }
      return found;
    };
  }
};

// The least cost of all partitions, by exhaustive search: the first remaining head opens a group
// and others fill it.
double least_cost(std::vector<std::int64_t> left, std::size_t members, const Points& points) {
  if (left.empty()) {
    return 0.0;
  }
  double least = std::numeric_limits<double>::max();
  std::vector<bool> taken(left.size() - 1, false);
  std::fill(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(members) - 1, true);
  do {
    HeadGroup group{left.front()};
    std::vector<std::int64_t> rest;
    for (std::size_t i = 1; i < left.size(); ++i) {
      (taken[i - 1] ? group : rest).push_back(left[i]);
    }
    least = std::min(least, points.cost(group) + least_cost(rest, members, points));
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return least;
}

double exhaustive_cost(std::int64_t heads, std::int64_t groups, const Points& points) {
  HeadGroup all;
  for (std::int64_t i = 0; i < heads; ++i) {
    all.push_back(i);
  }
  return least_cost(all, static_cast<std::size_t>(heads / groups), points);
}

TEST_CASE("the search finds the best partition of a few heads", "[converter]") {
  int best = 0, tried = 0;
  for (const auto& [heads, groups] : {std::pair{8, 4}, {8, 2}, {9, 3}, {12, 3}, {12, 6}}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      const Points points(heads, seed);
      const GroupCosts costs = points.costs();
      const double found = cost_of(similar_partition(heads, groups, costs), costs);
      const double least = exhaustive_cost(heads, groups, points);
      CAPTURE(heads, groups, seed);
      CHECK(found >= least * (1 - kSumRounding));
      CHECK(found <= least * 1.1);
      best += found <= least * (1 + kSumRounding) ? 1 : 0;
      ++tried;
    }
  }
  CHECK(best >= tried * 9 / 10);
}

TEST_CASE("a partition has every head once in sorted groups of equal size", "[converter]") {
  const Points points(24, 1);
  const Partition partition = similar_partition(24, 6, points.costs());
  std::vector<std::int64_t> heads;
  REQUIRE(partition.size() == 6);
  for (const HeadGroup& group : partition) {
    CHECK(group.size() == 4);
    CHECK(std::is_sorted(group.begin(), group.end()));
    heads.insert(heads.end(), group.begin(), group.end());
  }
  CHECK(std::is_sorted(partition.begin(), partition.end()));
  std::sort(heads.begin(), heads.end());
  for (std::int64_t i = 0; i < 24; ++i) {
    CHECK(heads.at(static_cast<std::size_t>(i)) == i);
  }
  CHECK(similar_partition(24, 6, points.costs()) == partition);
}

TEST_CASE("heads stay contiguous if no partition costs less", "[converter]") {
  const GroupCosts equal = [](const std::vector<HeadGroup>& groups) {
    return std::vector<double>(groups.size(), 1.0);
  };
  CHECK(similar_partition(8, 4, equal) == contiguous_partition(8, 4));
  CHECK(similar_partition(8, 2, equal) == contiguous_partition(8, 2));
  // Pair costs mislead here: for whole groups, contiguous heads are the best.
  const GroupCosts misleading = [](const std::vector<HeadGroup>& groups) {
    std::vector<double> found;
    for (const HeadGroup& group : groups) {
      const bool neighbours = group.back() - group.front() == std::ssize(group) - 1;
      found.push_back(group.size() == 2 ? static_cast<double>(8 - (group[1] - group[0]))
                                        : (neighbours ? 0.5 : 1.0));
    }
    return found;
  };
  CHECK(similar_partition(8, 2, misleading) == contiguous_partition(8, 2));
}

TEST_CASE("one group and as many groups as heads need no search", "[converter]") {
  const GroupCosts never = [](const std::vector<HeadGroup>&) -> std::vector<double> {
    throw std::runtime_error("asked");
  };
  CHECK(similar_partition(6, 1, never) == Partition{{0, 1, 2, 3, 4, 5}});
  CHECK(similar_partition(3, 3, never) == Partition{{0}, {1}, {2}});
}

TEST_CASE("the search evaluates at most the allowed number of large groups and still improves",
          "[converter]") {
  const Points points(32, 3);
  std::int64_t asked = 0;
  const Partition few = similar_partition(32, 4, points.costs(&asked), 40);
  CHECK(asked <= 40 + 16 + 3 * 4);  // the first batch, and whole partitions
  const GroupCosts costs = points.costs();
  CHECK(cost_of(few, costs) < 0.7 * cost_of(contiguous_partition(32, 4), costs));
  CHECK(cost_of(similar_partition(32, 4, costs, 100000), costs) <= cost_of(few, costs));
}

}  // namespace
}  // namespace regroup
