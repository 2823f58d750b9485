// A program made of commands: common options, one call for the command that was named, and errors
// turned into exit codes, here and nowhere else.
#pragma once

#include <functional>

#include <CLI/App.hpp>

#include "cli/console.h"

namespace regroup {

/// Parses the command line, runs what it names and returns the exit code; `add_commands` says which
/// commands there are.
int run_program(int argc, char** argv,
                const std::function<void(CLI::App& program, Console& console)>& add_commands);

}  // namespace regroup
