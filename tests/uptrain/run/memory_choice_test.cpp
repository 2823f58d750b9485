// Which memory mode a run gets, and what it is told if none fits.
#include "uptrain/run/memory_choice.h"

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

// A fake estimate: the modes need 100, 60 and 20 on the device, kHost 80 in the host.
MemoryNeed fake_need(const UptrainSettings& settings) {
  const double less = settings.recomputing ? 10 : 0;
  switch (settings.memory.value()) {
    case MemoryMode::kFull: return {100 - less, 0};
    case MemoryMode::kCompact: return {60 - less, 0};
    case MemoryMode::kHost: return {20 - less, 80};
  }
  return {};
}

UptrainSettings on_gpu() {
  UptrainSettings settings;
  settings.precision = Precision::kBf16;
  settings.device = c10::Device(c10::kCUDA, 0);
  return settings;
}

}  // namespace

TEST_CASE("the first memory mode that fits is chosen", "[uptrain]") {
  const auto chosen = [](const FreeMemory& free) {
    const MemoryChoice choice = choose_memory(on_gpu(), free, fake_need);
    CHECK(choice.automatic);
    CHECK(choice.options.size() == 3);
    return choice.mode;
  };
  CHECK(chosen({106, 1000}) == MemoryMode::kFull);
  CHECK(chosen({100, 1000}) == MemoryMode::kCompact);  // full fits, but leaves nothing
  CHECK(chosen({61, 1000}) == MemoryMode::kHost);
  CHECK(chosen({100, 70}) == MemoryMode::kCompact);
  CHECK(chosen({61, 70}) == MemoryMode::kCompact);           // nothing leaves room, this fits
  CHECK(chosen({std::nullopt, 1000}) == MemoryMode::kFull);  // unknown
  CHECK(chosen({59, std::nullopt}) == MemoryMode::kHost);
  CHECK(chosen({59, 70}) == MemoryMode::kCompact);  // none fits; the host has no room either
  CHECK(chosen({5, 1000}) == MemoryMode::kHost);    // none fits, this needs least
}

TEST_CASE("precision and device exclude memory modes", "[uptrain]") {
  UptrainSettings settings = on_gpu();
  settings.precision = Precision::kFp32;
  CHECK(choose_memory(settings, {50, 1000}, fake_need).mode == MemoryMode::kHost);
  settings.device = c10::kCPU;
  const MemoryChoice alone = choose_memory(settings, {50, std::nullopt}, fake_need);
  CHECK(alone.mode == MemoryMode::kFull);
  CHECK(alone.options.size() == 1);
  settings.precision = Precision::kBf16;
  CHECK(choose_memory(settings, {106, std::nullopt}, fake_need).mode == MemoryMode::kFull);
  CHECK(choose_memory(settings, {70, std::nullopt}, fake_need).mode == MemoryMode::kCompact);
}

TEST_CASE("a given memory mode is kept, and a shortage names others", "[uptrain]") {
  UptrainSettings settings = on_gpu();
  settings.memory = MemoryMode::kFull;
  const FreeMemory free{65, 1000};
  const MemoryChoice choice = choose_memory(settings, free, fake_need);
  CHECK(choice.mode == MemoryMode::kFull);
  CHECK_FALSE(choice.automatic);
  const auto shortage = shortage_of(settings, choice, free, fake_need);
  REQUIRE(shortage);
  CHECK(shortage->needed == 100);
  CHECK(shortage->available == 65);
  CHECK(shortage->where.is_cuda());
  REQUIRE(shortage->leaner.size() == 2);
  CHECK(shortage->leaner[0].options == "--memory compact");
  CHECK(shortage->leaner[1].options == "--memory host");
  CHECK(shortage->leaner[1].bytes == 20);
  CHECK_FALSE(
      shortage_of(settings, choose_memory(settings, {100, 0}, fake_need), {100, 0}, fake_need));
}

TEST_CASE("a mode is not suggested if the host lacks memory for it", "[uptrain]") {
  UptrainSettings settings = on_gpu();
  settings.memory = MemoryMode::kFull;
  const FreeMemory free{65, 70};
  const auto few = shortage_of(settings, choose_memory(settings, free, fake_need), free, fake_need);
  REQUIRE(few);
  REQUIRE(few->leaner.size() == 1);
  CHECK(few->leaner[0].options == "--memory compact");

  settings.memory = MemoryMode::kHost;
  const auto host =
      shortage_of(settings, choose_memory(settings, free, fake_need), free, fake_need);
  REQUIRE(host);
  CHECK(host->needed == 80);
  CHECK(host->available == 70);
  CHECK(host->where.is_cpu());
}

TEST_CASE("options are suggested with the mode that they would get", "[uptrain]") {
  const UptrainSettings settings = on_gpu();
  const FreeMemory free{15, 100};
  const MemoryChoice choice = choose_memory(settings, free, fake_need);
  const auto shortage = shortage_of(settings, choice, free, fake_need);
  REQUIRE(shortage);
  CHECK(shortage->needed == 20);
  REQUIRE_FALSE(shortage->leaner.empty());
  CHECK(shortage->leaner[0].options == "--activation-checkpointing");
  CHECK(shortage->leaner[0].bytes == 10);
}

}  // namespace regroup
