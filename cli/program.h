// A program made of commands: common options, one call for the command that was named, and errors
// turned into exit codes, here and nowhere else.
#pragma once

#include <functional>

#include "cli/options/command.h"
#include "cli/terminal/console.h"

namespace regroup {

/// Gives a program the options that all commands share, help, and the rules that hold for all
/// options (cli/options/option_needs.h).
void prepare_program(Command program, Console& console);

/// Parses the command line, runs what it names and returns the exit code; `add_commands` says which
/// commands there are.
int run_program(int argc, char** argv,
                const std::function<void(Command program, Console& console)>& add_commands);

}  // namespace regroup
