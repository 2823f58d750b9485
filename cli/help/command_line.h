// The program's commands and options as plain data, read off its CLI definition: what completions
// and the manual are made of.
#pragma once

#include <string>
#include <vector>

#include "cli/options/command.h"

namespace regroup {

struct OptionFacts {
  std::vector<std::string> names;  ///< "--kv-heads", "-q"; of a positional argument its one name
  std::string description;
  std::string value;                 ///< "TEXT"; empty for flags
  std::vector<std::string> choices;  ///< where only some values are allowed
  std::string usual;                 ///< the value where none is given; empty: none
  std::string needs;                 ///< what it has no effect without; empty: nothing
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

/// The commands that do something, in order, under all the words that name them: "bench decode" for
/// one within a group.
std::vector<CommandFacts> whole_commands(const CommandFacts& program);

}  // namespace regroup
