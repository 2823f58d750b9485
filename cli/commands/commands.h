// Adds the commands with their options to the program. Includes what commands are made of: options,
// output, progress, requests to stop, errors.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "cli/shell/progress.h"
#include "cli/shell/quantity.h"
#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

/// A command that needs LibTorch, or that describes all commands. The program without LibTorch only
/// lists it.
struct WholeProgramCommand {
  std::string_view name, description;
};
std::span<const WholeProgramCommand> whole_program_commands();
bool needs_whole_program(std::string_view name);

/// Adds the command of that name in whole_program_commands() with its description, without options.
Command add_whole_command(Command program, std::string_view name);

/// Adds the commands that only read, move and average numbers, inspect to expand, in the help's
/// order.
void add_file_commands(Command program, Console& console);

/// Adds all commands of this build.
void add_all_commands(Command program, Console& console);

/// A function that adds one command with its options to the program, or to a group of commands.
using AddCommand = void(Command program, Console& console);

AddCommand add_convert_command, add_completions_command, add_diff_command, add_expand_command,
    add_inspect_command, add_manual_command, add_plan_command, add_plot_command,
    add_tokenize_command, add_verify_command;

// These need LibTorch. Builds without it lack them.
AddCommand add_bench_command, add_bench_decode_command, add_calibrate_command, add_eval_command,
    add_init_command, add_sample_command, add_teach_command, add_uptrain_command;

}  // namespace regroup
