// Adds the commands with their options to the program.
#pragma once

#include <span>
#include <string_view>

#include "cli/shell/command.h"
#include "cli/shell/console.h"

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

void add_convert_command(Command program, Console& console);
void add_completions_command(Command program, Console& console);
void add_diff_command(Command program, Console& console);
void add_expand_command(Command program, Console& console);
void add_inspect_command(Command program, Console& console);
void add_manual_command(Command program, Console& console);
void add_plan_command(Command program, Console& console);
void add_plot_command(Command program, Console& console);
void add_tokenize_command(Command program, Console& console);
void add_verify_command(Command program, Console& console);

// These need LibTorch. Builds without it lack them.
void add_bench_command(Command program, Console& console);
void add_bench_decode_command(Command group, Console& console);
void add_calibrate_command(Command program, Console& console);
void add_sample_command(Command program, Console& console);
void add_eval_command(Command program, Console& console);
void add_init_command(Command program, Console& console);
void add_teach_command(Command program, Console& console);
void add_uptrain_command(Command program, Console& console);

}  // namespace regroup
