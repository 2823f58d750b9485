// The words of a command line as people type them: help by its name, names that are misspelt.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace regroup {

/// "help convert" -> "convert --help"; other words as they are. Throws kUsage for help on what is
/// no command.
std::vector<std::string> without_help_command(const CLI::App& program,
                                              const std::vector<std::string>& words);

/// "regroup bench decode": the command that the words name, as far as they do.
std::string chosen_command(const CLI::App& program);

/// Why the words were not understood, in one line: a command or option that there is not, with the
/// nearest name that there is, ahead of everything else.
std::string explain(const CLI::App& program, const CLI::ParseError& fault);

}  // namespace regroup
