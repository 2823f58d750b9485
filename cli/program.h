// Runs a program made of commands: adds common options, calls the named command, and turns errors
// into exit codes. No other file does the last.
#pragma once

#include <functional>

#include "cli/shell/command.h"
#include "cli/shell/console.h"

namespace regroup {

/// Adds help, the options that all commands share, and the checks that apply to all options
/// (cli/shell/option_needs.h).
void prepare_program(Command program, Console& console);

/// Parses the command line, runs the named command and returns the exit code. `add_commands` adds
/// the commands to the program.
int run_program(int argc, char** argv,
                const std::function<void(Command program, Console& console)>& add_commands);

}  // namespace regroup
