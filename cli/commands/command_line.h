// The command line: the program's commands and options as plain data, taken from the CLI11
// definition; their help, completions and manual, which are made from it; and why a command line
// was refused.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace regroup {

struct OptionFacts {
  std::vector<std::string> names;  ///< "--kv-heads", "-q"; a positional argument has one name
  std::string description;
  std::string value;                  ///< "TEXT"; empty for flags
  std::vector<std::string> choices;   ///< allowed values; empty: any
  std::string default_value;          ///< the default value; empty: none
  std::string needs;                  ///< options it has no effect without; empty: none
  std::vector<std::string> excludes;  ///< options that it cannot be given with
  std::string group;                  ///< its heading in the help
  bool several = false;               ///< takes more than one value
  bool positional = false;
  bool required = false;
};

struct CommandFacts {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<OptionFacts> options;
  std::vector<CommandFacts> commands;
};

CommandFacts facts_of(const CLI::App& command);

/// The commands without subcommands, in order, by their full names: "bench decode" for one in a
/// group.
std::vector<CommandFacts> whole_commands(const CommandFacts& program);

/// The help of a command: its arguments, and its options in groups of which the most used come
/// first, or its commands. `name` is what one types: "regroup bench decode". Lines have at most
/// `columns` columns, except where a word is longer.
std::string help_text(const CommandFacts& command, const std::string& name,
                      std::size_t columns = 80);

/// "regroup convert SOURCE OUTPUT [OPTIONS]", "regroup plot RUNS --output PATH [OPTIONS]".
std::string usage_of(const CommandFacts& command, const std::string& name);

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
