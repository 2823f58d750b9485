// What shells need to complete commands, options and their values.
#pragma once

#include <string>

#include "cli/help/command_line.h"

namespace regroup {

/// Scripts to be sourced, or put where the shell looks for completions.
std::string bash_completions(const CommandFacts& program);
std::string zsh_completions(const CommandFacts& program);
std::string fish_completions(const CommandFacts& program);

}  // namespace regroup
