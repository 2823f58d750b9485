#include "uptrain/run/memory_choice.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "uptrain/model/device.h"

namespace regroup {

namespace {

struct Change {
  std::string options;
  UptrainSettings settings;
  bool combines = true;  // false if a stronger change of the same kind follows
};

// Changes of some settings.
struct Changes {
  const UptrainSettings& from;
  std::vector<Change> all = {};

  // A copy of the settings, to be changed.
  UptrainSettings& add(std::string options, bool combines = true) {
    all.push_back({std::move(options), from, combines});
    return all.back().settings;
  }
};

// Changes that compute the same.
void add_equal_runs(Changes& changes) {
  const UptrainSettings& settings = changes.from;
  if (!settings.recomputing) {
    changes.add("--activation-checkpointing").recomputing = true;
  }
  // Halves the batch while it is even, and keeps the number of sequences per step.
  for (std::int64_t parts = 2; settings.batch % parts == 0; parts *= 2) {
    const std::int64_t batch = settings.batch / parts;
    const std::int64_t accumulation = settings.accumulation * parts;
    UptrainSettings& smaller =
        changes.add(fmt::format("--batch {} --accumulate {}", batch, accumulation),
                    /*combines=*/settings.batch % (2 * parts) != 0);
    smaller.batch = batch;
    smaller.accumulation = accumulation;
  }
  // Modes that keep less on the device than the given one. Where none is given, planning has tried
  // them all.
  const bool has_host = !settings.device.is_cpu();
  if (settings.memory == MemoryMode::kFull && settings.precision == Precision::kBf16) {
    changes.add("--memory compact", /*combines=*/!has_host).memory = MemoryMode::kCompact;
  }
  if (settings.memory && settings.memory != MemoryMode::kHost && has_host) {
    changes.add("--memory host").memory = MemoryMode::kHost;
  }
  if (settings.ranks > 1 && !settings.sharding.weights) {
    changes.add("--shard full").sharding.weights = true;
  }
}

void add_smaller_optimizers(Changes& changes) {
  const OptimizerSettings& optimizer = changes.from.optimizer;
  constexpr double kMostBeta2 = 0.99;  // that bf16 moments allow
  if (optimizer.kind != OptimizerKind::kAdamW) {
    return;
  }
  if (optimizer.moments == Precision::kFp32 && optimizer.beta2 <= kMostBeta2) {
    changes.add("--moments bf16", /*combines=*/false).optimizer.moments = Precision::kBf16;
  }
  OptimizerSettings& adafactor = changes.add("--optimizer adafactor").optimizer;
  adafactor.kind = OptimizerKind::kAdafactor;
  adafactor.moments = Precision::kFp32;
}

// Changes that compute the same come first, changes that train fewer weights last.
std::vector<Change> changes_of(const UptrainSettings& settings) {
  Changes changes{settings};
  add_equal_runs(changes);
  if (settings.precision == Precision::kFp32) {
    changes.add("--dtype bf16").precision = Precision::kBf16;
  }
  add_smaller_optimizers(changes);
  if (settings.teacher.present() && settings.teacher.attention_weight == 0.0) {
    TeacherSettings& teacher =
        changes.add("--teacher-logits (of regroup teach) instead of --teacher").teacher;
    teacher.logits = std::exchange(teacher.model, {});
  }
  if (settings.trained == TrainedWeights::kAll) {
    changes.add("--train attention", /*combines=*/false).trained = TrainedWeights::kAttention;
  }
  if (settings.trained != TrainedWeights::kKeysAndValues) {
    changes.add("--train kv").trained = TrainedWeights::kKeysAndValues;
  }
  return std::move(changes.all);
}

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

// The first that fits with room to spare, the first that fits, or the one that needs least.
MemoryMode first_that_fits(const std::vector<MemoryChoice::Option>& options,
                           const FreeMemory& free) {
  const FreeMemory to_fill = free.to_fill();
  const auto rank = [&](const MemoryChoice::Option& option) {
    const bool on_host = FreeMemory{std::nullopt, free.host}.holds(option.need);
    return std::tuple(!to_fill.holds(option.need), !option.fits, !on_host,
                      option.fits ? 0.0 : option.need.device);
  };
  return std::ranges::min(options, {}, rank).mode;
}

// Masters in host memory cost more time than weights that travel between devices.
bool stays_on_device(const MemoryChoice& memory) {
  return memory.mode != MemoryMode::kHost || !memory.automatic;
}

Sharding best_of(const std::vector<ShardingChoice::Option>& options, const FreeMemory& free) {
  const FreeMemory to_fill = free.to_fill();
  const auto rank = [&](const ShardingChoice::Option& option) {
    const MemoryChoice::Option& chosen = option.memory.chosen();
    const bool has_room = to_fill.holds(chosen.need);
    return std::tuple(!(has_room && stays_on_device(option.memory)), !has_room, !chosen.fits);
  };
  const ShardingChoice::Option& best = *std::ranges::min_element(options, {}, rank);
  return best.memory.chosen().fits ? best.sharding : options.back().sharding;
}

}  // namespace

std::vector<LeanerRun> leaner_runs(const UptrainSettings& settings, double available,
                                   const std::function<double(const UptrainSettings&)>& bytes_of) {
  std::vector<LeanerRun> enough;
  bool smaller_batch = false;  // only the largest batch that fits is named
  for (const Change& single : changes_of(settings)) {
    const bool is_batch = single.settings.batch != settings.batch;
    const double bytes = bytes_of(single.settings);
    if (bytes <= available && !(is_batch && smaller_batch)) {
      enough.push_back({single.options, bytes});
      smaller_batch = smaller_batch || is_batch;
    }
  }
  if (!enough.empty()) {
    return enough;
  }
  LeanerRun together{"", bytes_of(settings)};
  UptrainSettings reached = settings;
  for (bool more = true; more && together.bytes > available;) {
    more = false;
    for (const Change& next : changes_of(reached)) {
      const double bytes = bytes_of(next.settings);
      if (next.combines && bytes < together.bytes) {
        together = {together.options + (together.options.empty() ? "" : " ") + next.options, bytes};
        reached = next.settings;
        more = true;
        break;
      }
    }
  }
  return together.options.empty() ? std::vector<LeanerRun>() : std::vector{together};
}

FreeMemory free_memory(c10::Device device) {
  return {available_memory(device), device.is_cpu() ? std::nullopt : free_host_memory()};
}

const MemoryChoice::Option& MemoryChoice::chosen() const {
  return *std::ranges::find(options, mode, &Option::mode);
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

const ShardingChoice::Option& ShardingChoice::of(const Sharding& sharding) const {
  return *std::ranges::find(options, sharding, &Option::sharding);
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
    settings.sharding = sharding;
    choice.options.push_back({sharding, choose_memory(settings, free, need_of)});
  }
  settings.sharding = best_of(choice.options, free);
  return choice;
}

}  // namespace regroup
