#include "uptrain/run/sharding_choice.h"

#include <algorithm>

namespace regroup {
namespace {

UptrainSettings settings_with(const UptrainSettings& settings, const Sharding& sharding) {
  UptrainSettings changed = settings;
  changed.sharding = sharding;
  return changed;
}

// Masters in host memory cost more time than weights that travel between devices.
bool stays_on_device(const MemoryChoice& memory) {
  return memory.mode != MemoryMode::kHost || !memory.automatic;
}

Sharding best_of(const std::vector<ShardingChoice::Option>& options, const FreeMemory& free) {
  const FreeMemory to_fill = free.to_fill();
  const auto first = [&](auto suits) {
    return std::find_if(options.begin(), options.end(),
                        [&](const auto& option) { return suits(option.memory); });
  };
  auto found = first([&](const MemoryChoice& memory) {
    return to_fill.holds(memory.chosen().need) && stays_on_device(memory);
  });
  if (found == options.end()) {
    found = first([&](const MemoryChoice& memory) { return to_fill.holds(memory.chosen().need); });
  }
  if (found == options.end()) {
    found = first([](const MemoryChoice& memory) { return memory.chosen().fits; });
  }
  return found != options.end() ? found->sharding : options.back().sharding;
}

}  // namespace

const ShardingChoice::Option& ShardingChoice::of(const Sharding& sharding) const {
  return *std::find_if(options.begin(), options.end(),
                       [&](const Option& option) { return option.sharding == sharding; });
}

std::vector<Sharding> possible_shardings(const UptrainSettings& settings) {
  std::vector<Sharding> possible{{}};
  const std::int64_t machines = settings.ranks / settings.local_ranks;
  if (machines > 1 && settings.local_ranks > 1 && settings.ranks % settings.local_ranks == 0) {
    possible.push_back({.weights = true, .copies = machines});
  }
  possible.push_back({.weights = true});
  return possible;
}

ShardingChoice choose_sharding(UptrainSettings& settings, const FreeMemory& free,
                               const NeedOf& need_of) {
  ShardingChoice choice{.automatic = settings.sharding_is_open, .options = {}};
  const std::vector<Sharding> possible =
      choice.automatic ? possible_shardings(settings) : std::vector{settings.sharding};
  for (const Sharding& sharding : possible) {
    choice.options.push_back(
        {sharding, choose_memory(settings_with(settings, sharding), free, need_of)});
  }
  settings.sharding = best_of(choice.options, free);
  return choice;
}

}  // namespace regroup
