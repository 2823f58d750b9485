// Computes a teacher's top-k logits for all windows of a run and stores them, so that runs can
// learn from them without the teacher.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "formats/model/model.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/teacher_logits_file.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

struct TeachSettings {
  /// Settings of the run that will use the logits: data, seed, sequence length, task, temperature.
  /// `model` is the teacher; it runs in `precision` on `device`, `batch` windows at a time.
  UptrainSettings run;
  std::int64_t windows = 0;            ///< of the run, from its first; 0: one epoch
  std::int64_t top = 32;               ///< k, tokens kept per prediction
  std::uint64_t file_bytes = 1 << 30;  ///< approximate size of a file
};

struct TeachPlan {
  UptrainSettings run;  ///< with defaults filled in
  Task task;
  TeacherLogitsFacts facts;

  /// Bytes of all files without headers.
  std::uint64_t bytes() const;
};

/// Plans `settings` for `teacher`. Throws kUsage for invalid settings, and as plan_uptraining()
/// does for the task.
TeachPlan plan_teaching(const TeachSettings& settings, const Model& teacher,
                        const DataLoader& data);

/// Carries out `plan`: writes the directory `output`, which appears when it is complete. Until then
/// complete files are kept in OUTPUT.parts, and a later call with the same plan continues from
/// them. `progress` counts windows. Throws kUsage if the output exists or OUTPUT.parts belongs to
/// another plan; kInterruptedSaved soon after `stop` turns true.
void teach(const TeachPlan& plan, const Model& teacher, const DataLoader& data,
           const std::filesystem::path& output, const CountProgress& progress,
           const std::atomic<bool>& stop);

}  // namespace regroup
