// Writes shell scripts that complete commands, options and their values.
#pragma once

#include <string>

#include "cli/help/command_line.h"

namespace regroup {

/// Scripts to source, or to install where the shell looks for completions.
std::string bash_completions(const CommandFacts& program);
std::string zsh_completions(const CommandFacts& program);
std::string fish_completions(const CommandFacts& program);

}  // namespace regroup
