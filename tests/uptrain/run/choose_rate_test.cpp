#include <algorithm>
#include <cmath>
#include <map>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/run/uptrain_arguments.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/distill.h"

namespace regroup {
namespace {

// A planned run of a fixture, without a learning rate.
struct Planned {
  UptrainSettings settings;
  Model source = open_predicting_model(settings.model);
  DataLoader data = open_training_data(settings, source.spec);
  UptrainPlan plan = plan_uptraining(settings, source, data);

  std::optional<RateChoice> choose(const RateProgress& after_trial = {},
                                   const std::atomic<bool>& stop = kNeverStopped) {
    return choose_rate(plan, source, data, after_trial, stop);
  }
};

UptrainSettings run_without_rate(const TemporaryDirectory& directory, std::int64_t steps) {
  UptrainSettings settings = short_run(directory.path(), "llama", steps);
  settings.learning_rate.reset();
  return settings;
}

}  // namespace

TEST_CASE("the rate with the least loss on other text is chosen", "[uptrain]") {
  const TemporaryDirectory directory;
  Planned run{run_without_rate(directory, 64)};
  REQUIRE(run.plan.rate_trials);
  CHECK(run.plan.recipe["learning_rate"].is_null());
  std::map<double, double> losses;
  const auto choice = run.choose([&](double rate, double loss) { losses[rate] = loss; });
  REQUIRE(choice);
  REQUIRE(losses.size() >= 3);
  const auto best =
      std::min_element(losses.begin(), losses.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  CHECK(choice->rate == best->first);
  CHECK(choice->after == best->second);
  CHECK(choice->after < choice->before);
  CHECK(run.plan.schedule.peak == choice->rate);
  CHECK(run.plan.recipe["learning_rate"] == choice->rate);
  CHECK(run.plan.recipe["found_learning_rate"] == true);
  CHECK_FALSE(run.choose());  // nothing is left to choose
}

TEST_CASE("trials are judged by samples of the run on which they do not train", "[uptrain]") {
  const TemporaryDirectory directory;
  for (const std::int64_t steps : {64, 1000, 100'000}) {
    CAPTURE(steps);
    const UptrainSettings settings = run_without_rate(directory, steps);
    put_file(settings.data.front(), bytes_of_numbers(learnable_text(30'000, 64)));
    const Planned run{settings};
    const RateTrials& trials = run.plan.rate_trials.value();
    const std::int64_t batches = trials.steps * run.settings.accumulation + trials.judging;
    CHECK(batches * run.settings.batch <= run.data.windows());
    CHECK(batches <= steps * run.settings.accumulation);
    CHECK(trials.steps <= 100);
  }
}

TEST_CASE("there are no trials if the rate is set or run or text is too short", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto trials = [](const UptrainSettings& settings) {
    return Planned{settings}.plan.rate_trials.has_value();
  };
  UptrainSettings settings = run_without_rate(directory, 64);
  CHECK(trials(settings));
  settings.steps = 16;
  CHECK(Planned{settings}.plan.rate_trials.value().steps == 4);
  settings.steps = 15;
  CHECK_FALSE(trials(settings));
  CHECK(Planned{settings}.plan.recipe["learning_rate"] == 2e-4);
  settings = run_without_rate(directory, 64);
  settings.learning_rate = 1e-3;
  CHECK_FALSE(trials(settings));
  settings = run_without_rate(directory, 64);
  settings.schedule = LrScheduleKind::kInverseSqrt;
  CHECK_FALSE(trials(settings));
  settings = run_without_rate(directory, 64);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(200, 36)));
  const Planned short_text{settings};
  CHECK_FALSE(short_text.plan.rate_trials);
  CHECK(std::ranges::any_of(short_text.plan.notes, [](const std::string& note) {
    return note.starts_with("no trials of learning rates");
  }));
}

TEST_CASE("trials that are stopped leave no run behind", "[uptrain]") {
  const TemporaryDirectory directory;
  Planned run{run_without_rate(directory, 64)};
  std::atomic<bool> stop{false};
  const Error error = refusal_of([&] { run.choose([&](double, double) { stop = true; }, stop); });
  CHECK(error.kind() == ErrorKind::kInterrupted);
  CHECK(run.plan.rate_trials);
}

TEST_CASE("uptrain says and records which rate it found", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto arguments = uptrain_arguments(directory, "out");
  const ProgramResult plan = run_program(with_all(arguments, {"--dry-run", "--json"}));
  REQUIRE(plan.exit_code == 0);
  CHECK(plan.json()["rate_trials"]["steps"] == 9);  // of 300
  const ProgramResult done = run_program(with(arguments, "--json"));
  CAPTURE(done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(done.err.find("trials lowered the loss from") != std::string::npos);
  const double rate = done.json()["recipe"]["learning_rate"];
  CHECK(rate > 1e-6);
  CHECK(rate < 1e-2);
  const Json config = Json::parse(bytes_of_file(directory / "out/config.json"));
  CHECK(config["regroup"]["uptrain"]["learning_rate"] == rate);
  CHECK(config["regroup"]["uptrain"]["found_learning_rate"] == true);
}

}  // namespace regroup
