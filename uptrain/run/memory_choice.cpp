#include "uptrain/run/memory_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "uptrain/model/device.h"
#include "uptrain/model/host_memory.h"

namespace regroup {
namespace {

std::vector<MemoryMode> possible_modes(const UptrainSettings& settings) {
  std::vector<MemoryMode> modes{MemoryMode::kFull};
  if (settings.precision == Precision::kBf16) {
    modes.push_back(MemoryMode::kCompact);
  }
  if (!settings.device.is_cpu()) {
    modes.push_back(MemoryMode::kHost);
  }
  return modes;
}

MemoryMode first_that_fits(const std::vector<MemoryChoice::Option>& options,
                           const FreeMemory& free) {
  const FreeMemory to_fill = free.to_fill();
  for (const MemoryChoice::Option& option : options) {
    if (to_fill.holds(option.need)) {
      return option.mode;
    }
  }
  const auto rank = [&](const MemoryChoice::Option& option) {
    const bool on_host = FreeMemory{std::nullopt, free.host}.holds(option.need);
    return std::pair(!on_host, option.need.device);
  };
  const auto first = std::find_if(options.begin(), options.end(),
                                  [](const MemoryChoice::Option& option) { return option.fits; });
  return first != options.end()
             ? first->mode
             : std::min_element(options.begin(), options.end(), [&](const auto& a, const auto& b) {
                 return rank(a) < rank(b);
               })->mode;
}

}  // namespace

FreeMemory free_memory(c10::Device device) {
  return {available_memory(device), device.is_cpu() ? std::nullopt : free_host_memory()};
}

const MemoryChoice::Option& MemoryChoice::chosen() const {
  return *std::find_if(options.begin(), options.end(),
                       [this](const Option& option) { return option.mode == mode; });
}

MemoryChoice choose_memory(const UptrainSettings& settings, const FreeMemory& free,
                           const NeedOf& need_of) {
  MemoryChoice choice;
  for (const MemoryMode mode : possible_modes(settings)) {
    UptrainSettings with_mode = settings;
    with_mode.memory = mode;
    const MemoryNeed need = need_of(with_mode);
    choice.options.push_back({mode, need, free.holds(need)});
  }
  choice.automatic = !settings.memory.has_value();
  choice.mode = settings.memory.value_or(first_that_fits(choice.options, free));
  return choice;
}

std::optional<MemoryShortage> shortage_of(const UptrainSettings& settings,
                                          const MemoryChoice& choice, const FreeMemory& free,
                                          const NeedOf& need_of) {
  const MemoryChoice::Option& chosen = choice.chosen();
  if (chosen.fits) {
    return std::nullopt;
  }
  const bool of_device = free.device && chosen.need.device > *free.device;
  // The memory that is short, for runs that fit in the other one.
  const auto bytes_of = [&](const UptrainSettings& other) {
    const MemoryNeed need = choose_memory(other, free, need_of).chosen().need;
    const FreeMemory rest{of_device ? std::nullopt : free.device,
                          of_device ? free.host : std::nullopt};
    return !rest.holds(need) ? std::numeric_limits<double>::infinity()
           : of_device       ? need.device
                             : need.host;
  };
  MemoryShortage shortage{of_device ? chosen.need.device : chosen.need.host,
                          of_device ? *free.device : *free.host,
                          of_device ? settings.device : c10::Device(c10::kCPU),
                          {}};
  shortage.leaner = leaner_runs(settings, shortage.available, bytes_of);
  return shortage;
}

}  // namespace regroup
