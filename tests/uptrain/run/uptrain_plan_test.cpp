// Ranks agree on a memory mode.
#include "uptrain/run/uptrain_plan.h"

#include <array>
#include <chrono>
#include <functional>
#include <future>

#include <catch2/catch_test_macros.hpp>

#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

struct Chosen {
  MemoryMode mode;
  bool automatic;
};

// A plan in bf16 whose rank has chosen that mode.
UptrainPlan plan_with(const UptrainSettings& settings, const Model& source, const Chosen& chosen) {
  UptrainSettings run = settings;
  run.memory = chosen.mode;
  UptrainPlan plan = plan_uptraining(run, source, open_training_data(run, source.spec));
  plan.memory_choice.automatic = chosen.automatic;
  return plan;
}

// The plans of two ranks after they agreed.
std::array<UptrainPlan, 2> agreed(const Model& source,
                                  const std::function<UptrainPlan(int rank)>& planned) {
  const int port = free_port();
  const auto run = [&](int rank) {
    UptrainPlan plan = planned(rank);
    ProcessGroup group(launch_of_two(rank, port), at::kCPU, std::chrono::seconds(60));
    agree_on_memory(plan, source, group);
    return plan;
  };
  std::future<UptrainPlan> other = std::async(std::launch::async, run, 1);
  UptrainPlan here = run(0);
  return {std::move(here), other.get()};
}

std::array<UptrainPlan, 2> agreed(const Chosen& first, const Chosen& second) {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 2);
  settings.precision = Precision::kBf16;
  const Model source = open_computable_model(settings.model);
  return agreed(source,
                [&](int rank) { return plan_with(settings, source, rank == 0 ? first : second); });
}

}  // namespace

TEST_CASE("ranks that chose different memory modes take the leanest", "[uptrain][ranks]") {
  const auto plans = agreed({MemoryMode::kFull, true}, {MemoryMode::kCompact, true});
  for (const UptrainPlan& plan : plans) {
    CHECK(plan.settings.memory == MemoryMode::kCompact);
    CHECK(plan.memory_choice.mode == MemoryMode::kCompact);
    CHECK(plan.memory.total() == plans[1].memory.total());
  }
}

TEST_CASE("all ranks share the weights if one of them cannot hold all", "[uptrain][ranks]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 2);
  settings.ranks = settings.local_ranks = settings.accumulation = 2;
  settings.sharding_is_open = true;
  const Model source = open_computable_model(settings.model);
  const auto plans = agreed(source, [&](int rank) {
    UptrainPlan plan = plan_uptraining(settings, source, open_training_data(settings, source.spec));
    REQUIRE(plan.settings.sharding == Sharding{});
    if (rank == 1) {
      plan.settings.sharding = {.weights = true};
    }
    return plan;
  });
  UptrainSettings shared = settings;
  shared.sharding = {.weights = true};
  shared.memory = MemoryMode::kFull;
  const double bytes = training_memory(shared, source.spec, plans[0].task, 12).total();
  CHECK(plans[0].settings.sharding == Sharding{.weights = true});
  CHECK(plans[1].settings.sharding == Sharding{.weights = true});
  CHECK(plans[0].sharding_agreed);
  CHECK(plans[0].memory.total() == bytes);
  CHECK(plans[0].traffic.total() == training_traffic(shared, source.spec, nullptr, 12).total());
}

TEST_CASE("a memory mode that the user gave is kept on its rank", "[uptrain][ranks]") {
  const auto plans = agreed({MemoryMode::kFull, false}, {MemoryMode::kCompact, false});
  CHECK(plans[0].settings.memory == MemoryMode::kFull);
  CHECK(plans[1].settings.memory == MemoryMode::kCompact);
}

}  // namespace regroup
