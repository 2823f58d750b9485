// The options that say what a model is asked in training, beyond what its config tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "uptrain/objective.h"

namespace regroup {

struct TaskOptions {
  std::string objective;             ///< empty: the model's own
  std::int64_t first_sentinel = -1;  ///< below 0: the tokenizer's
  std::optional<std::int64_t> end_token, mask_token;

  /// Throws kUsage for an objective that there is not.
  TaskSettings settings() const;
};

/// `options` must live as long as `command`.
void add_task_options(CLI::App& command, TaskOptions& options);

}  // namespace regroup
