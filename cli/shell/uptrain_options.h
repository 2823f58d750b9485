// Options of `regroup uptrain`, and those that it shares with other commands: documents,
// objective, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "cli/shell/text_input.h"
#include "uptrain/run/memory_choice.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

struct DocumentOptions {
  std::string documents = "pack";
  std::optional<std::int64_t> end, start;  ///< tokens

  /// Throws kUsage for options that contradict one another.
  DocumentSettings settings() const;
};

/// Adds --documents, --document-end and --document-start.
void add_document_options(Command command, DocumentOptions& options);

/// `task` must outlive `command`. `default_objective` is that of encoder-decoders, for the help.
void add_task_options(Command command, TaskSettings& task, const std::string& default_objective);

/// Throws kUsage for a token that was `given` and that the objective does not use.
void check_task_options(const TaskSettings& given, Objective objective);

/// Adds --memory-check, on or off, of every command that trains.
void add_memory_check_option(Command command, bool& check);

/// If there is a shortage, throws kEnvironment if it `refuses` to run, otherwise prints a warning.
/// The message lists the options that need less memory.
void check_memory(const std::optional<MemoryShortage>& shortage, bool refuses,
                  const Console& console);

inline constexpr int kDefaultTimeout = 600;  ///< seconds

struct UptrainOptions {
  UptrainSettings settings;
  std::vector<std::string> data;
  TextInput text;  ///< instead of data
  DocumentOptions documents;
  std::string device = "cpu";
  std::string shard = "auto";
  std::optional<std::int64_t> accumulation;
  int threads = 0;
  std::optional<int> timeout;
  std::optional<std::int64_t> planned_ranks;  ///< of a plan, in place of the ranks of this launch
  std::optional<std::int64_t> planned_ranks_per_machine;
  bool memory_check = true;
  std::string resuming;  ///< "", "yes" or "auto"
  bool resume = false;   ///< whether this run resumes an earlier one
  bool dry_run = false;
  bool json = false;
};

/// `options` must outlive `command`.
void add_uptrain_options(Command command, UptrainOptions& options);

/// Which weights to train, and the optimizer: for `uptrain` and `bench train`.
void add_optimizer_options(Command command, UptrainSettings& settings);

/// What to compute in, and where to keep masters, moments and gradients: for the same.
void add_precision_option(Command command, UptrainSettings& settings);
void add_memory_option(Command command, UptrainSettings& settings);

/// Sequence length and batch size: for `uptrain`, `teach` and `bench train`.
void add_sequence_options(Command command, UptrainSettings& settings);

}  // namespace regroup
