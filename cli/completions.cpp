#include "cli/completions.h"

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

// Of options, not of positional arguments.
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

// Between single quotes.
std::string quoted(const std::string& text, std::string_view apostrophe) {
  return "'" + replaced(text, "'", apostrophe) + "'";
}

// The lines of a command's case: values after an option that takes some, else its options.
std::string bash_case(const CommandFacts& command) {
  std::string text = fmt::format("    {})\n      options='{}'\n      case $previous in\n",
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

// "[what it does]", as zsh's _arguments takes it.
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

}  // namespace

std::string bash_completions(const CommandFacts& program) {
  const auto commands = names_of(program.commands);
  std::string text = fmt::format(R"(# bash completion for regroup
_regroup() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' options='' values='' word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in
      {}) command=$word; break ;;
    esac
  done
  case $command in
    '') options='{}' values='{}' ;;
)",
                                 fmt::join(commands, "|"), fmt::join(option_names(program), " "),
                                 fmt::join(commands, " "));
  for (const CommandFacts& command : program.commands) {
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
    cases += fmt::format("        {})\n        {} ;;\n", command.name, zsh_arguments(command));
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
    text += fmt::format("complete -c regroup -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, quoted(command.description, "\\'"));
    const std::string condition = "__fish_seen_subcommand_from " + command.name;
    for (const OptionFacts& option : command.options) {
      if (!option.positional) {
        text += fish_line(condition, option);
      } else if (!option.choices.empty()) {
        text += fmt::format("complete -c regroup -n {} -f -a '{}'\n", quoted(condition, "\\'"),
                            fmt::join(option.choices, " "));
      }
    }
  }
  text.pop_back();
  return text;
}

}  // namespace regroup
