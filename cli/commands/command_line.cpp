#include "cli/commands/command_line.h"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/shell/option_needs.h"

namespace regroup {
namespace {

// Options whose values are words; all other TEXT names a file or a folder.
constexpr auto kWords =
    std::to_array<std::string_view>({"--attention", "--device", "--document-separator", "--field",
                                     "--filter", "--objective", "--prompt", "--target"});

// CLI11 describes allowed values as "TEXT:{a,b,c}".
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) {
    return choices;
  }
  for (std::size_t begin = open + 1; begin < close;) {
    const std::size_t end = std::min(type.find(',', begin), close);
    choices.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

// One entry for the named form of an option, one for its positional form; most have only one.
std::vector<OptionFacts> facts_of(const CLI::Option& option, const std::string& command) {
  OptionFacts facts;
  for (const std::string& name : option.get_lnames()) {
    facts.names.push_back("--" + name);
  }
  for (const std::string& name : option.get_snames()) {
    facts.names.push_back("-" + name);
  }
  facts.description = option.get_description();
  facts.group = option.get_group();
  for (const CLI::Option* other : option.get_excludes()) {
    facts.excludes.push_back(other->get_name());
  }
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    facts.several = option.get_items_expected_max() > 1;
    facts.value = type.substr(0, type.find_first_of(":{"));
    if (facts.value == "TEXT" &&
        std::find(kWords.begin(), kWords.end(), option.get_name()) == kWords.end()) {
      facts.value = "PATH";
    }
    facts.choices = choices_in(type);
    facts.default_value = option.get_default_str();
  }
  for (const std::string& name : facts.names) {
    facts.needs += facts.needs.empty() ? text_of_needs(command, name) : "";
  }
  std::vector<OptionFacts> ways;
  if (option.get_positional()) {
    OptionFacts positional = facts;
    positional.positional = true;
    positional.names = {option.get_name(true)};
    positional.required = option.get_required();
    ways.push_back(std::move(positional));
  } else {
    facts.required = option.get_required();
  }
  if (!facts.names.empty()) {
    ways.push_back(std::move(facts));
  }
  return ways;
}

}  // namespace

CommandFacts facts_of(const CLI::App& app, const std::string& path) {
  CommandFacts facts{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {  // hidden options have no group
      for (OptionFacts& way : facts_of(*option, path)) {
        facts.options.push_back(std::move(way));
      }
    }
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    facts.commands.push_back(
        facts_of(*command, path + (path.empty() ? "" : " ") + command->get_name()));
  }
  return facts;
}

CommandFacts facts_of(const Command& program) { return facts_of(program.app(), ""); }

std::vector<CommandFacts> whole_commands(const CommandFacts& program) {
  std::vector<CommandFacts> commands;
  for (const CommandFacts& command : program.commands) {
    if (command.commands.empty()) {
      commands.push_back(command);
    }
    for (CommandFacts part : whole_commands(command)) {
      part.name = command.name + " " + part.name;
      commands.push_back(std::move(part));
    }
  }
  return commands;
}

}  // namespace regroup
