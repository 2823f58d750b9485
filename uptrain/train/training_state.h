// The state of training, and its saving beside the next steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/json.h"
#include "uptrain/model/parameters.h"

namespace regroup {

// The state of a run, for bitwise resumption: a directory with one part per rank that writes.

/// The progress of a run.
struct TrainingProgress {
  std::int64_t step = 0;     ///< steps done, skipped ones included
  std::int64_t samples = 0;  ///< the next sample to draw
  std::int64_t skipped = 0;  ///< steps without an update, because of non-finite gradients
  std::int64_t skipped_in_a_row = 0;
  std::int64_t evaluated = -1;                       ///< the step after which it was last evaluated
  std::optional<double> loss_before = std::nullopt;  ///< of the evaluation before the first step

  bool operator==(const TrainingProgress&) const = default;
};

/// As a JSON object, and back. Throws kBadInput for a number out of its range, with `where` in
/// front.
Json json_of(const TrainingProgress& progress);
TrainingProgress progress_in(const Json& json, const std::string& where);

/// Which of the parts of a state; by default all of it.
struct StatePart {
  int number = 0;
  int count = 1;
};

/// Writes `tensors` and `progress` as a part of the state in `directory`, such as part-1-of-4. It
/// appears only when it is complete: the tensors in model.safetensors, everything else and a
/// checksum of each in state.json. `run` identifies the run the state belongs to. Does nothing if
/// the part, or the whole state in other parts, exists.
void save_training_state(const std::filesystem::path& directory, const TrainingProgress& progress,
                         std::span<const StateTensor> tensors, const std::string& run,
                         const StatePart& part = {});

/// Whether all parts of the state are there. They are not opened.
bool is_complete_state(const std::filesystem::path& directory);

/// Removes the parts that were written for `run`, or not to their end, and the directory if nothing
/// else is in it. Leaves what the program has not written.
void remove_training_state(const std::filesystem::path& directory, const std::string& run);

/// Reads `tensors`, in place, from whichever parts hold them, and returns the progress. Throws
/// kBadInput naming the file when anything is missing or damaged, or a number is out of its range;
/// kUsage if it is intact and of another run or version. `tensors` are then unspecified.
TrainingProgress load_training_state(const std::filesystem::path& directory,
                                     std::span<const StateTensor> tensors, const std::string& run);

/// Saves one state at a time, in the background if there is memory for a copy.
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
