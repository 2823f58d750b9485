#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "uptrain/train/lr_schedule.h"

namespace regroup {
namespace {

// An error that is least at `best` and grows with the distance in powers of ten.
struct Valley {
  double best = 0.0;
  std::vector<double> tried = {};

  double operator()(double rate) {
    tried.push_back(rate);
    return std::abs(std::log10(rate / best));
  }
};

}  // namespace

TEST_CASE("a search finds the best rate from any earlier result", "[uptrain]") {
  RateSearch search;
  for (const double best : {0.01, 0.3, 0.0003, 0.1, 0.03, 0.003, 0.001, 0.3}) {
    Valley valley{best};
    CHECK(search.best([&](double rate) { return valley(rate); }) == best);
  }
}

TEST_CASE("a search takes three trials if the last result is still the best", "[uptrain]") {
  RateSearch search;
  Valley first{0.01}, second{0.01};
  search.best([&](double rate) { return first(rate); });
  search.best([&](double rate) { return second(rate); });
  CHECK((first.tried == std::vector<double>{0.03, 0.01, 0.003}));
  CHECK((second.tried == std::vector<double>{0.01, 0.003, 0.03}));
}

TEST_CASE("a search stays inside its range and survives errors that are not finite", "[uptrain]") {
  RateSearch search;
  const double best = search.best(
      [](double rate) { return rate > 0.002 ? std::numeric_limits<double>::quiet_NaN() : rate; });
  CHECK(best == 0.0003);
  const double falling = search.best([](double rate) { return rate; });
  CHECK(falling == 0.0003);
  const double rising = search.best([](double rate) { return -rate; });
  CHECK(rising == 0.3);
}

TEST_CASE("a run longer than its trials takes the largest rate that was nearly as good as the best",
          "[uptrain]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(rate_of_longer_run({{0.002, 0.4}, {0.006, 0.3}, {0.02, 0.44}}, 1.0) == 0.02);
  CHECK(rate_of_longer_run({{0.002, 0.4}, {0.006, 0.3}, {0.02, 0.46}}, 1.0) == 0.006);
  CHECK(rate_of_longer_run({{0.002, 0.3}, {0.006, 0.31}, {0.02, nan}}, 1.0) == 0.006);
  // Worse than no training.
  CHECK(rate_of_longer_run({{0.002, 0.15}, {0.006, 0.14}, {0.02, 0.2}}, 0.16) == 0.006);
  CHECK(rate_of_longer_run({{0.002, 1.2}, {0.006, 1.3}}, 1.0) == 0.002);
  CHECK(rate_of_longer_run({{0.002, nan}, {0.006, 0.5}}, 1.0) == 0.006);
  CHECK(rate_of_longer_run({{0.006, nan}}, 1.0) == 0.006);
}

}  // namespace regroup
