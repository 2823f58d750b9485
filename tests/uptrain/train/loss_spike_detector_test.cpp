#include <cmath>

#include <catch2/catch_test_macros.hpp>

#include "uptrain/train/lr_schedule.h"

namespace regroup {
namespace {

// After a full window of losses alternating between 1.9 and 2.1: mean 2, standard deviation 0.1.
LossSpikeDetector after_a_window() {
  LossSpikeDetector watch;
  for (std::size_t i = 0; i < LossSpikeDetector::kWindow; ++i) {
    CHECK_FALSE(watch.add(i % 2 == 0 ? 1.9 : 2.1));
  }
  return watch;
}

}  // namespace

TEST_CASE("a loss far above the previous ones is reported as a spike once", "[uptrain]") {
  LossSpikeDetector watch = after_a_window();
  CHECK_FALSE(watch.add(2.55));
  watch = after_a_window();
  CHECK(watch.add(2.65));
  CHECK_FALSE(watch.add(9.0));
  CHECK_FALSE(watch.add(2.0));
}

TEST_CASE("a spike exceeds nearly constant losses by at least 10 %", "[uptrain]") {
  LossSpikeDetector watch;
  for (std::size_t i = 0; i < LossSpikeDetector::kWindow; ++i) {
    watch.add(2.0);
  }
  LossSpikeDetector other = watch;
  CHECK_FALSE(watch.add(2.19));
  CHECK(other.add(2.21));
}

TEST_CASE("no spikes are reported before the window is full", "[uptrain]") {
  LossSpikeDetector watch;
  watch.add(1.0);
  CHECK_FALSE(watch.add(100.0));
}

TEST_CASE("the mean covers the last window of losses", "[uptrain]") {
  CHECK(std::isnan(LossSpikeDetector().mean()));
  LossSpikeDetector watch;
  watch.add(1.0);
  watch.add(2.0);
  CHECK(watch.mean() == 1.5);
  for (std::size_t i = 0; i < LossSpikeDetector::kWindow; ++i) {
    watch.add(3.0);
  }
  CHECK(watch.mean() == 3.0);
}

}  // namespace regroup
