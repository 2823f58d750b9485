// The state of a run, for bitwise resumption: a directory with one part per rank that writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "uptrain/model/state_tensor.h"

namespace regroup {

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

}  // namespace regroup
