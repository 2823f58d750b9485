#include "uptrain/schedule.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

namespace regroup {

using Catch::Matchers::WithinRel;

TEST_CASE("learning rate warms up in a line and falls along half a cosine", "[uptrain]") {
  const CosineSchedule schedule{.peak = 1.0, .final_ratio = 0.1, .warmup_steps = 4, .steps = 12};
  CHECK(schedule.at(0) == 0.25);
  CHECK(schedule.at(2) == 0.75);
  CHECK(schedule.at(3) == 1.0);
  CHECK_THAT(schedule.at(7), WithinRel(0.55, 1e-12));  // half way down
  CHECK_THAT(schedule.at(11), WithinRel(0.1, 1e-12));
  CHECK_THAT(schedule.at(50), WithinRel(0.1, 1e-12));
  for (int step = 4; step < 12; ++step) {
    CHECK(schedule.at(step) < schedule.at(step - 1));
  }
}

TEST_CASE("learning rate needs no warm-up and no second step", "[uptrain]") {
  CHECK(CosineSchedule{2.0, 0.5, 0, 1}.at(0) == 1.0);
  CHECK(CosineSchedule{2.0, 0.5, 1, 1}.at(0) == 2.0);
}

}  // namespace regroup
