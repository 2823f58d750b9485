// Options that make a run fit in memory.
#include <catch2/catch_test_macros.hpp>

#include "uptrain/run/memory_choice.h"

namespace regroup {
namespace {

// A fake estimate: 8 units per sequence and 40 for weights and optimizer.
double bytes_needed(const UptrainSettings& settings) {
  double bytes = 8.0 * static_cast<double>(settings.batch);
  bytes /= settings.recomputing ? 4 : 1;
  bytes /= settings.precision == Precision::kBf16 ? 2 : 1;
  bytes += settings.trained == TrainedWeights::kAll             ? 40
           : settings.trained == TrainedWeights::kKeysAndValues ? 10
                                                                : 20;
  return bytes + (settings.optimizer.kind == OptimizerKind::kAdafactor ? 0
                  : settings.optimizer.moments == Precision::kBf16     ? 10
                                                                       : 20);
}

std::vector<std::string> options_of(const std::vector<LeanerRun>& runs) {
  std::vector<std::string> options;
  for (const LeanerRun& run : runs) {
    options.push_back(run.options);
  }
  return options;
}

}  // namespace

TEST_CASE("each option that suffices alone is listed with its memory", "[uptrain]") {
  UptrainSettings settings;
  settings.batch = 8;
  settings.accumulation = 2;
  REQUIRE(bytes_needed(settings) == 124);
  const std::vector<LeanerRun> runs = leaner_runs(settings, 104, bytes_needed);
  CHECK(options_of(runs) == std::vector<std::string>{"--activation-checkpointing",
                                                     "--batch 4 --accumulate 4", "--dtype bf16",
                                                     "--optimizer adafactor", "--train attention",
                                                     "--train kv"});
  for (const LeanerRun& run : runs) {
    CHECK(run.bytes <= 104);
  }
  CHECK(runs[1].bytes == 92);
}

TEST_CASE("several options are combined if none suffices alone", "[uptrain]") {
  UptrainSettings settings;
  settings.batch = 8;
  const std::vector<LeanerRun> runs = leaner_runs(settings, 61, bytes_needed);
  CHECK(
      options_of(runs) ==
      std::vector<std::string>{"--activation-checkpointing --batch 1 --accumulate 8 --dtype bf16"});
  CHECK(runs.front().bytes == 61);
}

TEST_CASE("the leanest run is listed if no options suffice", "[uptrain]") {
  UptrainSettings settings;
  settings.batch = 6;
  const std::vector<LeanerRun> runs = leaner_runs(settings, 1, bytes_needed);
  CHECK(options_of(runs) ==
        std::vector<std::string>{"--activation-checkpointing --batch 3 --accumulate 2 --dtype bf16 "
                                 "--optimizer adafactor --train kv"});
  CHECK(runs.front().bytes == 13);
  CHECK(leaner_runs(settings, 1, [](const UptrainSettings&) { return 2.0; }).empty());
}

}  // namespace regroup
