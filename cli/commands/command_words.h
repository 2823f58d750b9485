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

/// `words`, so that CLI11 takes every word after "--" as an argument. Throws kUsage for an option
/// of the program without its value, for which CLI11 would take the next word, whatever it is:
/// "--data=" and "--data --json". Also for "-o=FILE", where it would take "=FILE".
std::vector<std::string> checked_words(const CLI::App& program, std::vector<std::string> words);

/// The command that was parsed, such as "regroup bench decode"; "regroup" if none was.
std::string chosen_command(const CLI::App& program);

/// One line that says why the command line, `words`, was refused. Reports an unknown command or
/// option before other faults, and suggests the nearest known name.
std::string explain(const CLI::App& program, const std::vector<std::string>& words,
                    const CLI::ParseError& fault);

}  // namespace regroup
