// The program's commands and options as plain data, taken from the CLI11 definition. Completions
// and the manual are made from it.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/command.h"

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

CommandFacts facts_of(const Command& program);

/// Of one command, which is called `path` from the program on: "bench decode".
CommandFacts facts_of(const CLI::App& command, const std::string& path);

/// The commands without subcommands, in order, by their full names: "bench decode" for one in a
/// group.
std::vector<CommandFacts> whole_commands(const CommandFacts& program);

}  // namespace regroup
