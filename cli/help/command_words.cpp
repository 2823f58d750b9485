#include "cli/help/command_words.h"

#include <algorithm>
#include <cctype>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/suggestion.h"

namespace regroup {
namespace {

bool is_option(const std::string& word) {
  return word.size() > 1 && word.front() == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

std::vector<std::string> commands_in(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
  }
  return names;
}

void add_options_of(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_fnames()) {
      names.push_back("--" + name);
    }
  }
}

std::string with_suggestion(std::string message, const std::string& near) {
  return near.empty() ? message : fmt::format("{}; did you mean {}?", message, near);
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  if (needs_whole_program(word)) {
    return fmt::format(
        "{} needs LibTorch; this regroup was built without it "
        "(-DREGROUP_LIBTORCH=OFF)",
        word);
  }
  std::vector<std::string> names = commands_in(app);
  if (app.get_parent() == nullptr) {  // suggest commands that this build lacks, too
    for (const WholeProgramCommand& command : whole_program_commands()) {
      names.emplace_back(command.name);
    }
  }
  return with_suggestion(fmt::format("\"{}\" is not a command", printable(word)),
                         nearest_name(word, names));
}

const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
  }
  return *app;
}

}  // namespace

std::vector<std::string> without_help_command(const CLI::App& program,
                                              const std::vector<std::string>& words) {
  const auto help = std::find_if_not(words.begin(), words.end(), is_option);
  if (help == words.end() || *help != "help") {
    return words;
  }
  std::vector<std::string> resolved(words.begin(), help);
  const CLI::App* app = &program;
  for (auto word = help + 1; word != words.end(); ++word) {
    const auto names = commands_in(*app);
    if (std::find(names.begin(), names.end(), *word) == names.end()) {
      throw_usage("help: {} (see regroup --help)", unknown_command(*app, *word));
    }
    app = app->get_subcommand(*word);
    resolved.push_back(*word);
  }
  resolved.emplace_back("--help");
  return resolved;
}

std::string chosen_command(const CLI::App& program) {
  std::string name = "regroup";
  for (auto chosen = program.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    name += " " + chosen.front()->get_name();
  }
  return name;
}

std::string explain(const CLI::App& program, const CLI::ParseError& fault) {
  const CLI::App& command = innermost(program);
  const std::vector<std::string> unknown = program.remaining(true);
  const auto option = std::find_if(unknown.begin(), unknown.end(), is_option);
  if (option != unknown.end()) {
    std::vector<std::string> names;
    add_options_of(command, names);
    add_options_of(program, names);
    const std::string typed = option->substr(0, option->find('='));
    return with_suggestion(fmt::format("{} is not an option", printable(typed)),
                           nearest_name(typed, names));
  }
  if (!unknown.empty() && !commands_in(command).empty()) {
    return unknown_command(command, unknown.front());
  }
  const std::string message = fault.what();
  return printable(message.substr(0, message.find('\n')), 0);
}

}  // namespace regroup
