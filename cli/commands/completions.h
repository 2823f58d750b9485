// Completions and the manual page.
#pragma once

#include <string>

#include "cli/commands/command_line.h"
#include "formats/base/json.h"

namespace regroup {

// Writes shell scripts that complete commands, options and their values.

/// Scripts to source, or to install where the shell looks for completions.
std::string bash_completions(const CommandFacts& program);
std::string zsh_completions(const CommandFacts& program);
std::string fish_completions(const CommandFacts& program);

// The manual page, in the macros of man(7).

std::string manual_page(const CommandFacts& program);

/// The same as a list of {"name", "description", "options"}; of these, "several" says whether an
/// option takes more than one value.
Json commands_json(const CommandFacts& program);

}  // namespace regroup
