#include "uptrain/run/memory_choice.h"

#include <algorithm>
#include <limits>
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

// Collects changes of some settings.
class Changes {
 public:
  explicit Changes(const UptrainSettings& settings) : settings_(settings) {}

  void add(std::string options, const std::function<void(UptrainSettings&)>& make,
           bool combines = true) {
    all_.push_back({std::move(options), settings_, combines});
    make(all_.back().settings);
  }

  // Halves the batch while it is even, and keeps the number of sequences per step.
  void add_smaller_batches() {
    for (std::int64_t parts = 2; settings_.batch % parts == 0; parts *= 2) {
      const std::int64_t batch = settings_.batch / parts;
      const std::int64_t accumulation = settings_.accumulation * parts;
      add(
          fmt::format("--batch {} --accumulate {}", batch, accumulation),
          [&](UptrainSettings& to) {
            to.batch = batch;
            to.accumulation = accumulation;
          },
          /*combines=*/settings_.batch % (2 * parts) != 0);
    }
  }

  // Modes that keep less on the device than the given one. Where none is given, planning has tried
  // them all.
  void add_leaner_modes() {
    const auto add_mode = [&](MemoryMode mode, bool combines) {
      add(
          fmt::format("--memory {}", name_of(mode)), [&](UptrainSettings& to) { to.memory = mode; },
          combines);
    };
    const bool has_host = !settings_.device.is_cpu();
    if (settings_.memory == MemoryMode::kFull && settings_.precision == Precision::kBf16) {
      add_mode(MemoryMode::kCompact, !has_host);
    }
    if (settings_.memory && settings_.memory != MemoryMode::kHost && has_host) {
      add_mode(MemoryMode::kHost, true);
    }
  }

  void add_smaller_optimizers() {
    const OptimizerSettings& optimizer = settings_.optimizer;
    constexpr double kMostBeta2 = 0.99;  // that bf16 moments allow
    if (optimizer.kind != OptimizerKind::kAdamW) {
      return;
    }
    if (optimizer.moments == Precision::kFp32 && optimizer.beta2 <= kMostBeta2) {
      add(
          "--moments bf16", [](UptrainSettings& to) { to.optimizer.moments = Precision::kBf16; },
          false);
    }
    add("--optimizer adafactor", [](UptrainSettings& to) {
      to.optimizer.kind = OptimizerKind::kAdafactor;
      to.optimizer.moments = Precision::kFp32;
    });
  }

  void add_fewer_trained_weights() {
    if (settings_.trained == TrainedWeights::kAll) {
      add(
          "--train attention", [](UptrainSettings& to) { to.trained = TrainedWeights::kAttention; },
          false);
    }
    if (settings_.trained != TrainedWeights::kKeysAndValues) {
      add("--train kv", [](UptrainSettings& to) { to.trained = TrainedWeights::kKeysAndValues; });
    }
  }

  std::vector<Change> take() { return std::move(all_); }

 private:
  const UptrainSettings& settings_;
  std::vector<Change> all_;
};

// Changes that compute the same come first, changes that train fewer weights last.
std::vector<Change> changes_of(const UptrainSettings& settings) {
  Changes changes(settings);
  if (!settings.recomputing) {
    changes.add("--activation-checkpointing", [](UptrainSettings& to) { to.recomputing = true; });
  }
  changes.add_smaller_batches();
  changes.add_leaner_modes();
  if (settings.ranks > 1 && !settings.sharding.weights) {
    changes.add("--shard full", [](UptrainSettings& to) { to.sharding.weights = true; });
  }
  if (settings.precision == Precision::kFp32) {
    changes.add("--dtype bf16", [](UptrainSettings& to) { to.precision = Precision::kBf16; });
  }
  changes.add_smaller_optimizers();
  if (settings.teacher.present() && settings.teacher.attention_weight == 0.0) {
    changes.add("--teacher-logits (of regroup teach) instead of --teacher",
                [](UptrainSettings& to) {
                  to.teacher.logits = to.teacher.model;
                  to.teacher.model.clear();
                });
  }
  changes.add_fewer_trained_weights();
  return changes.take();
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

namespace {

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
    settings.sharding = sharding;
    choice.options.push_back({sharding, choose_memory(settings, free, need_of)});
  }
  settings.sharding = best_of(choice.options, free);
  return choice;
}

}  // namespace regroup
