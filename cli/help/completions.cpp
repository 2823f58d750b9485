#include "cli/help/completions.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {
namespace {

std::vector<std::string> names_of(const std::vector<CommandFacts>& commands) {
  std::vector<std::string> names;
  for (const CommandFacts& command : commands) {
    names.push_back(command.name);
  }
  return names;
}

// Commands with subcommands.
std::vector<CommandFacts> groups_in(const CommandFacts& program) {
  std::vector<CommandFacts> groups;
  for (const CommandFacts& command : program.commands) {
    if (!command.commands.empty()) {
      groups.push_back(command);
    }
  }
  return groups;
}

// Excludes positional arguments.
std::vector<std::string> option_names(const CommandFacts& command) {
  std::vector<std::string> names;
  for (const OptionFacts& option : command.options) {
    if (!option.positional) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
  }
  return names;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// `text` in single quotes; `apostrophe` replaces quotes within it.
std::string quoted(const std::string& text, std::string_view apostrophe) {
  return "'" + replaced(text, "'", apostrophe) + "'";
}

// A command's case: offers the values of an option that has choices, otherwise the options.
std::string bash_case(const CommandFacts& command) {
  std::string text = fmt::format("    '{}')\n      options='{}'\n      case $previous in\n",
                                 command.name, fmt::join(option_names(command), " "));
  for (const OptionFacts& option : command.options) {
    if (!option.choices.empty() && !option.positional) {
      text += fmt::format("        {}) values='{}' ;;\n", fmt::join(option.names, "|"),
                          fmt::join(option.choices, " "));
    } else if (option.positional && !option.choices.empty()) {
      text +=
          fmt::format("        {}) values='{}' ;;\n", command.name, fmt::join(option.choices, " "));
    }
  }
  return text + "      esac ;;\n";
}

// The word after a group belongs to the command's name.
std::string bash_words_of_groups(const CommandFacts& program) {
  std::string text;
  for (const CommandFacts& group : groups_in(program)) {
    text += fmt::format("      {}) case $word in {}) command=\"$command $word\" ;; esac ;;\n",
                        group.name, fmt::join(names_of(group.commands), "|"));
  }
  return text;
}

// If no command follows the group, offers the names of its commands.
std::string bash_offers_of_groups(const CommandFacts& program) {
  std::string text;
  for (const CommandFacts& group : groups_in(program)) {
    text += fmt::format("    {}) values='{}' ;;\n", group.name,
                        fmt::join(names_of(group.commands), " "));
  }
  return text;
}

// "[description]" for zsh's _arguments, where brackets delimit it.
std::string zsh_description(const std::string& text) {
  return "[" + replaced(replaced(text, "[", "("), "]", ")") + "]";
}

std::string zsh_spec(const OptionFacts& option, const std::string& name) {
  const std::string values = option.choices.empty()
                                 ? std::string("_files")
                                 : fmt::format("({})", fmt::join(option.choices, " "));
  if (option.positional) {
    return quoted(fmt::format(":{}:{}", name, values), "'\\''");
  }
  return quoted(name + zsh_description(option.description) +
                    (option.value.empty() ? "" : fmt::format(":{}:{}", option.value, values)),
                "'\\''");
}

std::string zsh_arguments(const CommandFacts& command) {
  std::string text = "_arguments";
  for (const OptionFacts& option : command.options) {
    for (const std::string& name : option.names) {
      text += " \\\n          " + zsh_spec(option, name);
    }
  }
  return text;
}

// The word after a group is one of its commands.
std::string zsh_group(const CommandFacts& group) {
  std::string names, cases;
  for (const CommandFacts& command : group.commands) {
    names += " " + command.name;
    cases += fmt::format("            {})\n        {} ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(
      "_arguments -C '1:command:({})' '*::argument:->part'\n"
      "          case $state in part) case $line[1] in\n{}          esac ;; esac",
      names.substr(1), cases);
}

std::string fish_line(const std::string& condition, const OptionFacts& option) {
  std::string line = "complete -c regroup -n " + quoted(condition, "\\'");
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.choices.empty()) {
    line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
  } else if (!option.value.empty()) {
    line += " -r";
  }
  return line + " -d " + quoted(option.description, "\\'") + "\n";
}

std::string fish_command(const std::string& condition, const CommandFacts& command) {
  return fmt::format("complete -c regroup -n {} -f -a {} -d {}\n", quoted(condition, "\\'"),
                     command.name, quoted(command.description, "\\'"));
}

std::string fish_options(const std::string& condition, const CommandFacts& command) {
  std::string text;
  for (const OptionFacts& option : command.options) {
    if (!option.positional) {
      text += fish_line(condition, option);
    } else if (!option.choices.empty()) {
      text += fmt::format("complete -c regroup -n {} -f -a '{}'\n", quoted(condition, "\\'"),
                          fmt::join(option.choices, " "));
    }
  }
  return text;
}

}  // namespace

std::string bash_completions(const CommandFacts& program) {
  const auto commands = names_of(program.commands);
  std::string text = fmt::format(R"(# bash completion for regroup
_regroup() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' options='' values='' word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $command in
      '') case $word in {}) command=$word ;; esac ;;
{}    esac
  done
  case $command in
    '') options='{}' values='{}' ;;
{})",
                                 fmt::join(commands, "|"), bash_words_of_groups(program),
                                 fmt::join(option_names(program), " "), fmt::join(commands, " "),
                                 bash_offers_of_groups(program));
  for (const CommandFacts& command : whole_commands(program)) {
    text += bash_case(command);
  }
  return text + R"(  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  else
    local IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _regroup regroup)";
}

std::string zsh_completions(const CommandFacts& program) {
  std::string described, cases;
  for (const CommandFacts& command : program.commands) {
    described += fmt::format("    {}\n", quoted(command.name + ":" + command.description, "'\\''"));
    cases += fmt::format("        {})\n        {} ;;\n", command.name,
                         command.commands.empty() ? zsh_arguments(command) : zsh_group(command));
  }
  return fmt::format(R"(#compdef regroup
_regroup() {{
  local -a commands=(
{}  )
  local context state state_descr line
  typeset -A opt_args
  _arguments -C '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $line[1] in
{}      esac ;;
  esac
}}
if [[ $funcstack[1] == _regroup ]]; then _regroup "$@"; else compdef _regroup regroup; fi)",
                     described, cases);
}

std::string fish_completions(const CommandFacts& program) {
  std::string text = "# fish completion for regroup\n";
  for (const OptionFacts& option : program.options) {
    text += fish_line("__fish_use_subcommand", option);
  }
  for (const CommandFacts& command : program.commands) {
    text += fish_command("__fish_use_subcommand", command);
    const std::string seen = "__fish_seen_subcommand_from " + command.name;
    text += fish_options(seen, command);
    for (const CommandFacts& part : command.commands) {
      const std::string others = fmt::format("; and not __fish_seen_subcommand_from {}",
                                             fmt::join(names_of(command.commands), " "));
      text += fish_command(seen + others, part);
      text += fish_options(seen + "; and __fish_seen_subcommand_from " + part.name, part);
    }
  }
  text.pop_back();
  return text;
}

}  // namespace regroup
