// Writes training states, in the background if there is memory for a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "uptrain/model/state_tensor.h"
#include "uptrain/trainer/training_state.h"

namespace regroup {

/// Saves one state at a time.
class StateSaver {
 public:
  using Save = std::function<void(const TrainingProgress&, std::span<const StateTensor>)>;

  /// The outcome of saving a state.
  struct Outcome {
    std::int64_t step = 0;
    std::string fault;  ///< empty: it is saved
  };

  /// `save` writes a state, see RunDirectory::save(). In the background it runs on a separate
  /// thread, with copies of the tensors in host memory that are reused for later states.
  StateSaver(Save save, bool in_background)
      : save_(std::move(save)), in_background_(in_background) {}

  /// Starts to save `tensors`, which may change as soon as this returns. `transient`
  /// marks whole host tensors that nobody else uses, or is empty for none: these are not copied but
  /// kept until they are written. The outcome of the previous state must have been taken.
  void start(const TrainingProgress& progress, std::span<const StateTensor> tensors,
             const std::vector<bool>& transient = {});

  /// The outcome of the last state, once; none while it is being written. Rethrows what `save`
  /// threw if that is not an Error.
  std::optional<Outcome> outcome();

  /// The same, but waits for it; none if it was taken or there was no state.
  std::optional<Outcome> wait();

 private:
  void copy(std::span<const StateTensor> tensors, const std::vector<bool>& transient);

  Save save_;
  bool in_background_;
  std::vector<StateTensor> copies_;
  std::int64_t step_ = 0;
  std::future<void> writing_;  // last member: joined before what it uses is destroyed
};

}  // namespace regroup
