#include "uptrain/run/memory_savings.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace regroup {
namespace {

struct Change {
  std::string options;
  UptrainSettings settings;
  bool combines = true;  // false if a stronger change of the same kind follows
};

Change change(const UptrainSettings& settings, std::string options,
              const std::function<void(UptrainSettings&)>& make, bool combines = true) {
  Change changed{std::move(options), settings, combines};
  make(changed.settings);
  return changed;
}

// Halves the batch while it is even, and keeps the number of sequences per step.
std::vector<Change> smaller_batches(const UptrainSettings& settings) {
  std::vector<Change> changes;
  for (std::int64_t parts = 2; settings.batch % parts == 0; parts *= 2) {
    const std::int64_t batch = settings.batch / parts;
    const std::int64_t accumulation = settings.accumulation * parts;
    changes.push_back(change(
        settings, fmt::format("--batch {} --accumulate {}", batch, accumulation),
        [&](UptrainSettings& to) {
          to.batch = batch;
          to.accumulation = accumulation;
        },
        /*combines=*/settings.batch % (2 * parts) != 0));
  }
  return changes;
}

std::vector<Change> smaller_optimizers(const UptrainSettings& settings) {
  std::vector<Change> changes;
  if (settings.optimizer.kind != OptimizerKind::kAdamW) {
    return changes;
  }
  constexpr double kMostBeta2 = 0.99;  // that bf16 moments allow
  if (settings.optimizer.moments == Precision::kFp32 && settings.optimizer.beta2 <= kMostBeta2) {
    changes.push_back(change(
        settings, "--moments bf16",
        [](UptrainSettings& to) { to.optimizer.moments = Precision::kBf16; }, false));
  }
  changes.push_back(change(settings, "--optimizer adafactor", [](UptrainSettings& to) {
    to.optimizer.kind = OptimizerKind::kAdafactor;
    to.optimizer.moments = Precision::kFp32;
  }));
  return changes;
}

std::vector<Change> fewer_trained_weights(const UptrainSettings& settings) {
  std::vector<Change> changes;
  if (settings.trained == TrainedWeights::kAll) {
    changes.push_back(change(
        settings, "--train attention",
        [](UptrainSettings& to) { to.trained = TrainedWeights::kAttention; }, false));
  }
  if (settings.trained != TrainedWeights::kKeysAndValues) {
    changes.push_back(change(settings, "--train kv", [](UptrainSettings& to) {
      to.trained = TrainedWeights::kKeysAndValues;
    }));
  }
  return changes;
}

// Modes that keep less on the device than the given one. Where none is given, planning has tried
// them all.
std::vector<Change> leaner_modes(const UptrainSettings& settings) {
  std::vector<Change> changes;
  const auto add = [&](MemoryMode mode, bool combines) {
    changes.push_back(change(
        settings, fmt::format("--memory {}", name_of(mode)),
        [&](UptrainSettings& to) { to.memory = mode; }, combines));
  };
  const bool has_host = !settings.device.is_cpu();
  if (settings.memory == MemoryMode::kFull && settings.precision == Precision::kBf16) {
    add(MemoryMode::kCompact, !has_host);
  }
  if (settings.memory && settings.memory != MemoryMode::kHost && has_host) {
    add(MemoryMode::kHost, true);
  }
  return changes;
}

// Changes that compute the same come first, changes that train fewer weights last.
std::vector<Change> changes_of(const UptrainSettings& settings) {
  std::vector<Change> changes;
  const auto add_all = [&](std::vector<Change> more) {
    std::move(more.begin(), more.end(), std::back_inserter(changes));
  };
  if (!settings.recomputing) {
    changes.push_back(change(settings, "--activation-checkpointing",
                             [](UptrainSettings& to) { to.recomputing = true; }));
  }
  add_all(smaller_batches(settings));
  add_all(leaner_modes(settings));
  if (settings.ranks > 1 && !settings.sharding.weights) {
    changes.push_back(
        change(settings, "--shard full", [](UptrainSettings& to) { to.sharding.weights = true; }));
  }
  if (settings.precision == Precision::kFp32) {
    changes.push_back(change(settings, "--dtype bf16",
                             [](UptrainSettings& to) { to.precision = Precision::kBf16; }));
  }
  add_all(smaller_optimizers(settings));
  if (settings.teacher.present() && settings.teacher.attention_weight == 0.0) {
    changes.push_back(change(settings, "--teacher-logits (of regroup teach) instead of --teacher",
                             [](UptrainSettings& to) {
                               to.teacher.logits = to.teacher.model;
                               to.teacher.model.clear();
                             }));
  }
  add_all(fewer_trained_weights(settings));
  return changes;
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

}  // namespace regroup
