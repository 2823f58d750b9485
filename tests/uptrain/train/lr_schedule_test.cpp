#include "uptrain/train/lr_schedule.h"

#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"

namespace regroup {

using Catch::Matchers::WithinRel;

TEST_CASE("the learning rate rises linearly and then falls as half a cosine", "[uptrain]") {
  const LrSchedule schedule{.peak = 1.0, .final_ratio = 0.1, .warmup_steps = 4, .steps = 12};
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

TEST_CASE("the cosine schedule works with one step and with or without warm-up", "[uptrain]") {
  CHECK(LrSchedule{.peak = 2.0, .final_ratio = 0.5, .warmup_steps = 0, .steps = 1}.at(0) == 1.0);
  CHECK(LrSchedule{.peak = 2.0, .final_ratio = 0.5, .warmup_steps = 1, .steps = 1}.at(0) == 2.0);
}

TEST_CASE("schedules equal those of transformers", "[uptrain]") {
  const Json golden =
      parse_json_object(read_text(regroup::golden("optimizers.json"), 1 << 20), "golden");
  const auto check = [&](const char* name, const LrSchedule& schedule) {
    REQUIRE(golden[name].size() == 20);
    for (std::size_t step = 0; step < 20; ++step) {
      CAPTURE(name, step);
      CHECK_THAT(schedule.at(static_cast<std::int64_t>(step)),
                 WithinRel(golden[name][step].get<double>(), 1e-12));
    }
  };
  check("cosine", {.peak = 2.0, .final_ratio = 0.1, .warmup_steps = 4, .steps = 20});
  check("wsd", {.peak = 2.0,
                .final_ratio = 0.1,
                .steps = 20,
                .kind = LrScheduleKind::kWarmupStableDecay,
                .decay_steps = 8});
  check("constant",
        {.peak = 2.0, .warmup_steps = 4, .steps = 20, .kind = LrScheduleKind::kConstant});
}

TEST_CASE("the warmup-stable-decay schedule has three linear parts", "[uptrain]") {
  const LrSchedule schedule{.peak = 1.0,
                            .final_ratio = 0.0,
                            .warmup_steps = 2,
                            .steps = 10,
                            .kind = LrScheduleKind::kWarmupStableDecay,
                            .decay_steps = 4};
  const double expected[] = {0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0};
  for (int step = 0; step <= 10; ++step) {
    CHECK(schedule.at(step) == expected[step]);
  }
}

TEST_CASE("the inverse square root schedule is flat for 10000 steps and continues from start_step",
          "[uptrain]") {
  const LrSchedule fresh{.peak = 1.0, .steps = 1 << 20, .kind = LrScheduleKind::kInverseSqrt};
  CHECK(fresh.at(0) == 0.01);
  CHECK(fresh.at(10'000) == 0.01);
  CHECK(fresh.at(40'000) == 0.005);
  LrSchedule continued = fresh;
  continued.start_step = 1'000'000;
  continued.peak = 2.0;
  CHECK(continued.at(0) == 0.002);
  CHECK_THAT(continued.at(50'000), WithinRel(2.0 / std::sqrt(1'050'000.0), 1e-15));
  continued.warmup_steps = 4;
  CHECK_THAT(continued.at(1), WithinRel(continued.at(3) / 2, 1e-15));
}

TEST_CASE("schedules are parsed from their names and others refused", "[uptrain]") {
  for (const LrScheduleKind kind : {LrScheduleKind::kCosine, LrScheduleKind::kWarmupStableDecay,
                                    LrScheduleKind::kConstant, LrScheduleKind::kInverseSqrt}) {
    CHECK(parse_lr_schedule(name_of(kind)) == kind);
  }
  CHECK_THAT(refusal_of([] { parse_lr_schedule("linear"); }), is_wrong_usage("linear", "wsd"));
}

}  // namespace regroup
