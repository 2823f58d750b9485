// Chooses what each of several ranks holds of a model.
#pragma once

#include <cstdint>
#include <vector>

#include "uptrain/run/memory_choice.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

struct ShardingChoice {
  /// A way to share, with the memory mode that it would get.
  struct Option {
    Sharding sharding;
    MemoryChoice memory;
  };

  bool automatic = false;       ///< the settings leave it open
  std::vector<Option> options;  ///< those compared, from the most memory to the least

  /// The option of that way to share.
  const Option& of(const Sharding& sharding) const;
};

/// The ways to share that the ranks of `settings` have if these leave it open: all weights on each
/// rank; full sharding with a copy on each machine, if there are several; full sharding.
std::vector<Sharding> possible_shardings(const UptrainSettings& settings);

/// Chooses for several ranks, and sets the choice in `settings`. If these leave it open: the first
/// that leaves a twentieth of the device's memory free, without MemoryMode::kHost if one can; else
/// the first that fits; else the one that needs least.
ShardingChoice choose_sharding(UptrainSettings& settings, const FreeMemory& free,
                               const NeedOf& need_of);

}  // namespace regroup
