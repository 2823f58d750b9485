// Options for the training objective, in addition to what the model's config says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/shell/command.h"
#include "uptrain/train/objective.h"

namespace regroup {

struct TaskOptions {
  std::string objective;  ///< empty: the model's default
  std::optional<std::int64_t> first_sentinel, end_token, mask_token;

  /// Throws kUsage for an unknown objective.
  TaskSettings settings() const;
};

/// `options` must outlive `command`. `default_objective` is that of encoder-decoders, for the help.
void add_task_options(Command command, TaskOptions& options, const std::string& default_objective);

/// Throws kUsage for a token that was given and that the objective does not use.
void check_task_options(const TaskOptions& options, Objective objective);

}  // namespace regroup
