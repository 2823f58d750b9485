// Runs that learn from stored teacher logits.
#pragma once

#include <atomic>
#include <filesystem>

#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/teach.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {

// Settings of regroup teach for `run`: `top` tokens, 5 windows per file.
inline TeachSettings settings_for(const UptrainSettings& run, const std::filesystem::path& teacher,
                                  std::int64_t windows, std::int64_t top) {
  TeachSettings settings{.run = run, .windows = windows, .top = top};
  settings.run.model = teacher;
  settings.run.batch = 4;  // differs from the run's
  const Model model = open_computable_model(teacher);
  settings.file_bytes = 1;
  const TeachPlan plan = plan_teaching(settings, model, open_training_data(run, model.spec));
  settings.file_bytes = 5 * plan.facts.sample_bytes();
  return settings;
}

inline void make_answers(const TeachSettings& settings, const std::filesystem::path& output,
                         const CountProgress& progress = {},
                         const std::atomic<bool>& stop = false) {
  const Model teacher = open_computable_model(settings.run.model);
  const DataLoader data = open_training_data(settings.run, teacher.spec);
  teach(plan_teaching(settings, teacher, data), teacher, data, output, progress, stop);
}

// A run of 4 steps (24 windows) on the llama of tests/golden, with stored logits of the one with
// other weights.
inline UptrainSettings taught_run(const std::filesystem::path& directory, std::int64_t top) {
  UptrainSettings run = short_run(directory, "llama", 4);
  run.teacher.distillation = {0.7, 2.0};
  make_answers(settings_for(run, golden("llama_bf16"), 24, top), directory / "answers");
  run.teacher.logits = directory / "answers";
  return run;
}

}  // namespace regroup
