// Handles the help command, and explains command lines that do not parse.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace regroup {

/// "help convert" -> "convert --help"; returns other words unchanged. Throws kUsage for help on an
/// unknown command.
std::vector<std::string> without_help_command(const CLI::App& program,
                                              const std::vector<std::string>& words);

/// The command that was parsed, such as "regroup bench decode"; "regroup" if none was.
std::string chosen_command(const CLI::App& program);

/// One line that says why the command line was refused. Reports an unknown command or option before
/// other faults, and suggests the nearest known name.
std::string explain(const CLI::App& program, const CLI::ParseError& fault);

}  // namespace regroup
