// The states of a run on all of its ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "uptrain/distributed/process_group.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/run/uptrain.h"
#include "uptrain/train/run_directory.h"
#include "uptrain/train/training_state.h"

namespace regroup {

/// Each rank saves and loads its part of a state, if all ranks see the run's directory. Otherwise
/// the first rank does it for all, and holds whole states in host memory for that.
class RunStates {
 public:
  /// `group` is null for a single process; `tensors` are this rank's. All ranks construct it, and
  /// call all functions but poll(). `observer` is told on the first rank.
  RunStates(ProcessGroup* group, std::vector<StateTensor> tensors, bool in_background,
            UptrainObserver& observer);

  /// `open` makes or opens the run's directory: with `true` on the first rank, then on the others
  /// to join it.
  void open(const std::function<RunDirectory(bool first)>& open);

  /// Valid after open().
  const RunDirectory& directory() const { return *directory_; }

  /// Whether all ranks see the run's directory, and with it the output's.
  bool shared() const { return shared_; }

  /// The newest state that all ranks can read; see RunDirectory::load_newest().
  std::optional<TrainingProgress> load_newest(const RunDirectory::Check& check);

  /// Saves a state, in the background if there is memory for it. A fault is a warning: the previous
  /// state remains.
  void start_saving(const TrainingProgress& progress);

  /// Reports what became of the state that is being saved, as soon as it is known.
  void poll();

  /// Waits for that state.
  void finish_saving();

  /// Saves a state and returns when it is complete. Throws kEnvironment if it is not.
  void save_now(const TrainingProgress& progress);

 private:
  bool first() const { return group_ == nullptr || group_->first(); }
  StatePart part() const;
  std::vector<StateTensor> tensors_to_save() const;
  void report_saved(std::int64_t step);
  bool all_see(const std::filesystem::path& directory) const;

  ProcessGroup* group_;
  ShardedState state_;
  UptrainObserver& observer_;
  std::optional<RunDirectory> directory_;
  bool shared_ = false;
  std::optional<std::int64_t> saving_;  // the step of the state that is being saved
  std::optional<std::string> fault_;    // of this rank's part; empty: it is written
  bool reported_ = false;               // what became of the state
  StateSaver saver_;
};

}  // namespace regroup
