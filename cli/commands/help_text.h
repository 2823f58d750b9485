// The text of --help.
#pragma once

#include <string>

#include "cli/commands/command_line.h"

namespace regroup {

/// The help of a command, named as it is typed ("regroup bench decode"): its arguments, its options
/// in groups, those most used first, or its commands. At most 80 columns, but for the footer's
/// commands.
std::string help_text(const CommandFacts& command, const std::string& name);

}  // namespace regroup
