// The options that say what a model is asked in training, beyond what its config tells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/command.h"
#include "uptrain/objective/objective.h"

namespace regroup {

struct TaskOptions {
  std::string objective;  ///< empty: the model's own
  std::optional<std::int64_t> first_sentinel, end_token, mask_token;

  /// Throws kUsage for an objective that there is not.
  TaskSettings settings() const;
};

/// `options` must live as long as `command`. `usual` says what encoder-decoders are asked
/// otherwise.
void add_task_options(Command command, TaskOptions& options, const std::string& usual);

/// Throws kUsage for a token that was given and is none of that objective's.
void check_task_options(const TaskOptions& options, Objective objective);

}  // namespace regroup
