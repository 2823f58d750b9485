// OUT.run, next to the output OUT: the recipe of a run, its metrics and its saved states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/training_state.h"

namespace regroup {

/// Used by one process at a time, or by the ranks of one run:
///   run.json        the recipe and the model it belongs to
///   metrics.jsonl   see MetricsLog
///   state-<step>/   the last two training states, until the run is complete; see StatePart
class RunDirectory {
 public:
  /// OUT.run for an output OUT.
  static std::filesystem::path path_for(const std::filesystem::path& output);

  /// Throws kUsage if create(), or with `resume` resume(), would fail: the output exists, there is
  /// a run already, or none to resume. Changes nothing.
  static void check_output(const std::filesystem::path& output, bool resume);

  /// Whether there is a run for an output, complete or not.
  static bool exists(const std::filesystem::path& output);

  /// The recipe of the run for an output; an empty object where there is none. Throws kBadInput for
  /// a run.json that is damaged.
  static Json recorded_recipe(const std::filesystem::path& output);

  /// Makes the directory of a new run. Throws kUsage if the output, or a run for it, exists.
  static RunDirectory create(const std::filesystem::path& output, const Json& recipe,
                             const std::string& model);

  /// Opens the directory of an earlier run to resume it. Its number of steps may differ, and its
  /// batch and accumulation if their product does not. Throws kUsage if there is none, if another
  /// process uses it, or naming each other setting that differs in either direction; kBadInput if
  /// it belongs to another model.
  static RunDirectory resume(const std::filesystem::path& output, const Json& recipe,
                             const std::string& model);

  /// The directory that another rank of the run has made or opened. It may save and load.
  static RunDirectory join(const std::filesystem::path& output, const Json& recipe,
                           const std::string& model);

  const std::filesystem::path& path() const { return path_; }
  /// What resume() found to differ, and allowed; empty for nothing.
  const std::string& changes() const { return changes_; }
  std::filesystem::path metrics_path() const { return path_ / "metrics.jsonl"; }

  /// Saves a part of a state; with the first one remove_old_states(). Keeps an existing state of
  /// that step.
  void save(const TrainingProgress& progress, std::span<const StateTensor> tensors,
            const StatePart& part = {}) const;

  /// Removes all states of this run before the last two complete ones.
  void remove_old_states() const { remove_states(2); }

  /// Whether all parts of the state of a step are saved.
  bool is_saved(std::int64_t step) const { return is_complete_state(state_path(step)); }

  /// Called with what is wrong with a state, or an empty text; returns what any rank found wrong.
  using Agree = std::function<std::string(const std::string& fault)>;

  /// Throws kBadInput for a progress, or tensors, that the run cannot have.
  using Check = std::function<void(const TrainingProgress&, std::span<const StateTensor>)>;

  /// Reads the newest intact state; none if there are no states. Damaged states are reported
  /// through `warn`, unless it is empty, and set aside if an earlier one is intact. Throws
  /// kBadInput if states exist, or were set aside, and none can be used; kUsage for an intact one
  /// of another run. With `agree`, all ranks read the same state.
  std::optional<TrainingProgress> load_newest(std::span<const StateTensor> tensors,
                                              const std::function<void(const std::string&)>& warn,
                                              const Agree& agree = {},
                                              const Check& check = {}) const;

  /// The run is complete: removes its states but the newest `kept`. Those that were set aside stay,
  /// and so does whatever the run has not written.
  void remove_states(std::size_t kept = 0) const;

  /// The run is complete and of no more use: removes its states, its recipe and `files` in it, and
  /// the directory unless there is anything else. Faults are ignored.
  void remove(std::span<const std::string> files) const;

 private:
  RunDirectory(std::filesystem::path path, std::string identity);
  // A state's progress, or why it cannot be used.
  struct Loaded {
    std::optional<TrainingProgress> progress;
    std::string fault;
  };

  void lock();
  Loaded load(std::int64_t step, std::span<const StateTensor> tensors, const Check& check) const;
  std::filesystem::path state_path(std::int64_t step) const;
  void set_aside(std::int64_t step) const;
  void remove_state(std::int64_t step) const;

  std::filesystem::path path_;
  std::string identity_;  // of the recipe that the run began with, and of the model
  std::string changes_;
  Descriptor lock_;  // the open directory, locked
};

}  // namespace regroup
