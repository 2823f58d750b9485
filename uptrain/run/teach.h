// Asks a teacher once what a run will ask it, and writes its answers down: afterwards runs learn
// from them without the teacher.
//
// Shapes: N predictions, k tokens kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "formats/model/model.h"
#include "uptrain/data/data_loader.h"
#include "uptrain/distill/teacher_logits_file.h"
#include "uptrain/ops/loss.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

struct TeachSettings {
  /// Of the run that shall learn from the answers: data, seed, sequence length, task, temperature.
  /// `model` is the one that answers, in `precision` on `device`, `batch` windows at a time.
  UptrainSettings run;
  std::int64_t windows = 0;            ///< of the run, from its first on; 0: those of one epoch
  std::int64_t top = 32;               ///< tokens kept of each answer
  std::uint64_t file_bytes = 1 << 30;  ///< about so many in a file
};

struct TeachPlan {
  UptrainSettings run;  ///< with what was left open filled in
  Task task;
  TeacherLogitsFacts facts;

  /// Bytes of all files, headers left out.
  std::uint64_t bytes() const;
};

/// What `settings` ask of `teacher`. Throws kUsage for settings that make no sense, and as
/// plan_uptraining() does for the task.
TeachPlan plan_teaching(const TeachSettings& settings, const Model& teacher,
                        const DataLoader& data);

/// The k likeliest tokens of softmax(logits/τ), and the rest as a whole; all numbers on the device
/// of `teacher`. Memory is a few chunks of logits.
TopKLogits top_k_logits(const LmHeadInputs& teacher, std::int64_t k, double temperature,
                        std::int64_t logits_per_chunk = kLogitsPerChunk);

/// Called with the windows answered and all that shall be.
using TeachProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Carries out `plan`: makes the directory `output`, which appears when it is complete. Until then
/// the files that are complete stand in OUTPUT.parts, and are kept when the same is asked for once
/// more. Throws kUsage where the output exists, or what stands in OUTPUT.parts was made for another
/// plan; kInterruptedSaved soon after `stop` turns true.
void teach(const TeachPlan& plan, const Model& teacher, const DataLoader& data,
           const std::filesystem::path& output, const TeachProgress& progress,
           const std::atomic<bool>& stop);

}  // namespace regroup
