// Writes training states, where there is memory for a copy while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "uptrain/model/parameters.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// Saves one state at a time.
class StateSaver {
 public:
  using Save = std::function<void(const TrainingProgress&, std::span<const Parameters::Entry>)>;

  /// What became of a state.
  struct Outcome {
    std::int64_t step = 0;
    std::string fault;  ///< empty: it is saved
  };

  /// `save` writes a state, see RunDirectory::save(); in the background it is called on a thread of
  /// its own, with copies of the tensors in this machine's memory, which are kept for the next
  /// time.
  StateSaver(Save save, bool in_background)
      : save_(std::move(save)), in_background_(in_background) {}

  /// Begins to save `tensors`, which may change as soon as this returns. What became of the state
  /// before must have been told.
  void start(const TrainingProgress& progress, std::span<const Parameters::Entry> tensors);

  /// What became of the last state, told once; none while it is being written. Throws what `save`
  /// threw if that is not an Error.
  std::optional<Outcome> outcome();

  /// The same, but waits for it; none if it has been told, or there was no state.
  std::optional<Outcome> wait();

 private:
  void copy(std::span<const Parameters::Entry> tensors);

  Save save_;
  bool in_background_;
  std::vector<Parameters::Entry> copies_;
  std::int64_t step_ = 0;
  std::future<void> writing_;  // last: it is waited for before what it uses goes
};

}  // namespace regroup
