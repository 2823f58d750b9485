#include "uptrain/optim/loss_spike_detector.h"

#include <cmath>

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

// A full window of losses, 1.9 and 2.1 in turn: mean 2, standard deviation 0.1.
LossSpikeDetector after_a_window() {
  LossSpikeDetector watch;
  for (std::size_t i = 0; i < LossSpikeDetector::kWindow; ++i) {
    CHECK_FALSE(watch.add(i % 2 == 0 ? 1.9 : 2.1));
  }
  return watch;
}

}  // namespace

TEST_CASE("a loss far above those before it is a spike, once", "[uptrain]") {
  LossSpikeDetector watch = after_a_window();
  CHECK_FALSE(watch.add(2.55));
  watch = after_a_window();
  CHECK(watch.add(2.65));
  CHECK_FALSE(watch.add(9.0));
  CHECK_FALSE(watch.add(2.0));
}

TEST_CASE("losses that hardly stray need a tenth more for a spike", "[uptrain]") {
  LossSpikeDetector watch;
  for (std::size_t i = 0; i < LossSpikeDetector::kWindow; ++i) {
    watch.add(2.0);
  }
  LossSpikeDetector other = watch;
  CHECK_FALSE(watch.add(2.19));
  CHECK(other.add(2.21));
}

TEST_CASE("there are no spikes before a window is full", "[uptrain]") {
  LossSpikeDetector watch;
  watch.add(1.0);
  CHECK_FALSE(watch.add(100.0));
}

TEST_CASE("the mean is of the last losses", "[uptrain]") {
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
