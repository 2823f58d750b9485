// The text of --help.
#pragma once

#include <string>

#include "cli/commands/command_line.h"

namespace regroup {

/// The help of a command: its arguments, and its options in groups of which the most used come
/// first, or its commands. `name` is what one types: "regroup bench decode". Lines have at most 80
/// columns, except in the footer.
std::string help_text(const CommandFacts& command, const std::string& name);

/// "regroup convert SOURCE OUTPUT [OPTIONS]".
std::string usage_of(const CommandFacts& command, const std::string& name);

}  // namespace regroup
