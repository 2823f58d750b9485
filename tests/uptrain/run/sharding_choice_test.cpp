// What ranks hold, chosen by the memory that each way to share needs.
#include <catch2/catch_test_macros.hpp>

#include "uptrain/run/memory_choice.h"

namespace regroup {
namespace {

// Weights of 64 bytes on each rank or shared, and as much again for training in full mode, half in
// compact and none in host mode.
MemoryNeed fake_need_of_ranks(const UptrainSettings& settings) {
  const double weights =
      settings.sharding.weights ? 64.0 / static_cast<double>(settings.sharing_ranks()) : 64.0;
  switch (settings.memory.value()) {
    case MemoryMode::kFull: return {2 * weights, 0};
    case MemoryMode::kCompact: return {1.5 * weights, 0};
    case MemoryMode::kHost: return {weights, weights};
  }
  return {};
}

// Two machines with four GPUs each.
UptrainSettings eight_ranks() {
  UptrainSettings settings;
  settings.ranks = settings.accumulation = 8;
  settings.local_ranks = 4;
  settings.precision = Precision::kBf16;
  settings.device = c10::Device(c10::kCUDA, 0);
  settings.sharding_is_open = true;
  return settings;
}

struct RankChoice {
  Sharding sharding;
  MemoryMode mode;
};

RankChoice chosen_with(UptrainSettings settings, double device_bytes) {
  const ShardingChoice choice =
      choose_sharding(settings, {device_bytes, 1000.0}, fake_need_of_ranks);
  return {settings.sharding, choice.of(settings.sharding).memory.mode};
}

}  // namespace

TEST_CASE("ranks hold all weights if these fit, else a copy on each machine, else one in all",
          "[uptrain][ranks]") {
  const UptrainSettings settings = eight_ranks();
  CHECK(chosen_with(settings, 200).sharding == Sharding{});
  const RankChoice compact = chosen_with(settings, 110);  // not 2 x 64
  CHECK(compact.sharding == Sharding{});
  CHECK(compact.mode == MemoryMode::kCompact);
  const RankChoice copies = chosen_with(settings, 70);  // all weights only with the host's memory
  CHECK(copies.sharding == Sharding{.weights = true, .copies = 2});
  CHECK(copies.mode == MemoryMode::kFull);
  CHECK(chosen_with(settings, 20).sharding == Sharding{.weights = true});
  CHECK(chosen_with(settings, 20).mode == MemoryMode::kFull);
  CHECK(chosen_with(settings, 8.5).mode == MemoryMode::kHost);
  CHECK(chosen_with(settings, 1).sharding == Sharding{.weights = true});  // does not fit
}

TEST_CASE("a twentieth of the memory stays free if another way to share allows it",
          "[uptrain][ranks]") {
  UptrainSettings settings = eight_ranks();
  settings.memory = MemoryMode::kFull;
  CHECK(chosen_with(settings, 130).sharding == Sharding{.weights = true, .copies = 2});
  settings.local_ranks = 8;
  CHECK(chosen_with(settings, 130).sharding == Sharding{.weights = true});
}

TEST_CASE("a memory mode on the host that the user gave does not make ranks share weights",
          "[uptrain][ranks]") {
  UptrainSettings settings = eight_ranks();
  settings.memory = MemoryMode::kHost;
  CHECK(chosen_with(settings, 70).sharding == Sharding{});
}

TEST_CASE("a way to share that was given is kept", "[uptrain][ranks]") {
  UptrainSettings settings = eight_ranks();
  settings.sharding_is_open = false;
  CHECK(chosen_with(settings, 1).sharding == Sharding{});
  settings.sharding = {.weights = true, .copies = 4};
  CHECK(chosen_with(settings, 1000).sharding == Sharding{.weights = true, .copies = 4});
}

TEST_CASE("copies on machines are no choice on one machine or with one rank on each",
          "[uptrain][ranks]") {
  UptrainSettings settings = eight_ranks();
  CHECK(possible_shardings(settings).size() == 3);
  settings.local_ranks = 8;
  CHECK(possible_shardings(settings).size() == 2);
  settings.local_ranks = 1;
  CHECK(possible_shardings(settings).size() == 2);
}

}  // namespace regroup
