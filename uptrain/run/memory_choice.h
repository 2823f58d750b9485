// What is chosen to fit the memory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "uptrain/train/optimizer.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

// Suggests options for a run that does not fit in memory.

/// The same run with other options, as typed, and its memory in bytes.
struct LeanerRun {
  std::string options;
  double bytes = 0.0;
};

/// Runs that fit in `available` bytes by the estimate `bytes_of`: each single option that suffices,
/// those first that do not change the training result; if none does, several together; if these do
/// not suffice either, the run that takes least memory. A smaller batch comes with more
/// accumulation, so that steps stay the same.
std::vector<LeanerRun> leaner_runs(
    const UptrainSettings& settings, double available,
    const std::function<double(const UptrainSettings& settings)>& bytes_of);

// Chooses where a run keeps masters, moments and gradients.

/// Bytes. If the device is a CPU, all of them are memory of the device, for all ranks of this
/// machine.
struct MemoryNeed {
  double device = 0.0;
  double host = 0.0;  ///< of the machine with the device, for all ranks of this machine
};

/// Free bytes, where they are known.
struct FreeMemory {
  std::optional<double> device;
  std::optional<double> host;  ///< none if the device is a CPU

  /// Less a twentieth of the device's: memory that libraries take and allocators waste is not in
  /// the estimate. What is chosen for the user leaves room for it, if it can.
  FreeMemory to_fill() const {
    constexpr double kShareToFill = 0.95;
    return {device ? std::optional(kShareToFill * *device) : std::nullopt, host};
  }

  bool holds(const MemoryNeed& need) const {
    return (!device || need.device <= *device) && (!host || need.host <= *host);
  }
};

FreeMemory free_memory(c10::Device device);

/// What a run with these settings needs; their memory mode is set.
using NeedOf = std::function<MemoryNeed(const UptrainSettings& settings)>;

struct MemoryChoice {
  /// A mode that a run can have, and its memory.
  struct Option {
    MemoryMode mode = MemoryMode::kFull;
    MemoryNeed need;
    bool fits = true;
  };

  MemoryMode mode = MemoryMode::kFull;
  bool automatic = false;       ///< the settings leave the mode open
  std::vector<Option> options;  ///< all modes that precision and device allow, in order

  /// The option of `mode`.
  const Option& chosen() const;
};

/// The mode of `settings`. If they leave it open: the first of full, compact and host that fits and
/// leaves a twentieth of the device's memory free, else the first that fits; if none does, the one
/// that needs least memory of the device, if possible one that fits in the host's.
MemoryChoice choose_memory(const UptrainSettings& settings, const FreeMemory& free,
                           const NeedOf& need_of);

/// A run that does not fit.
struct MemoryShortage {
  double needed = 0.0, available = 0.0;  ///< bytes
  c10::Device where = c10::kCPU;         ///< whose memory is short
  std::vector<LeanerRun> leaner;         ///< options that need less of it
};

/// What is short for `settings` with the mode of `choice`; none if all fits.
std::optional<MemoryShortage> shortage_of(const UptrainSettings& settings,
                                          const MemoryChoice& choice, const FreeMemory& free,
                                          const NeedOf& need_of);

// Chooses what each of several ranks holds of a model.

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
