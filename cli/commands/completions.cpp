#include <algorithm>
#include <array>
#include <sstream>

#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"
#include "formats/version.h"

namespace regroup {
namespace {

// Prints what may follow the words of a command line, given as arguments, of which the last is
// being typed: words and descriptions. Reads the lines of add_lines().
constexpr const char* kOffers = R"(BEGIN {
  FS = "\t"
  for (count = 1; count < ARGC; ++count) words[count] = ARGV[count]
  current = words[--count]
  ARGC = 1
}
{ known[$1]; values[$1, $2]; line[NR] = $0 }
END {
  for (i = 1; i < count; ++i) {
    used[previous = words[i]]
    longer = command == "" ? previous : command " " previous
    if (longer in known) command = longer
  }
  of = (command, previous) in values ? previous : ""
  for (i = 1; i <= NR; ++i) {
    split(line[i], part)
    if (part[1] != command || part[2] != of || part[3] in used) continue
    if (of != "" || (part[3] ~ /^-/) == (current ~ /^-/)) print part[3] (part[4] == "" ? "" : FS part[4])
  }
})";

bool is_small_word(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
}

// A line for each word: the command that it follows ("bench decode"), the option that it is a value
// of, if it is one, the word and its description.
void add_lines(const CommandFacts& command, const std::string& path, std::string& table) {
  const auto add = [&](std::string_view option, std::string_view word, std::string_view text) {
    table += fmt::format("{}\t{}\t{}\t{}\n", path, option, word, text);
  };
  for (const OptionFacts& option : command.options) {
    for (const std::string& name : option.names) {
      for (const std::string& choice : option.choices) {
        add(option.positional ? "" : name, choice, "");
      }
      for (const std::string_view word : split(option.value, '|')) {  // "quick|normal|COUNT"
        if (option.choices.empty() && is_small_word(word)) {
          add(name, word, "");
        }
      }
      if (!option.positional) {
        add("", name, option.description);
      }
    }
  }
  for (const CommandFacts& part : command.commands) {
    add("", part.name, part.description);
    add_lines(part, path + (path.empty() ? "" : " ") + part.name, table);
  }
}

// `text` in single quotes; `apostrophe` replaces quotes within it.
std::string quoted(std::string text, std::string_view apostrophe) {
  replace_all(text, "'", apostrophe);
  return "'" + text + "'";
}

// A shell: how its script begins, how definitions begin, how their names end, how an apostrophe is
// quoted, and what follows the definitions.
struct Shell {
  std::string_view name, head, set, is, apostrophe, script;
};
constexpr auto kShells = std::to_array<Shell>(
    {{"bash", "# bash completion for regroup", "", "=", "'\\''", R"(_regroup() {
  local IFS=$'\n' current=${COMP_WORDS[COMP_CWORD]} offers
  offers=$(awk "$_regroup_offers" "${COMP_WORDS[@]:1:COMP_CWORD}" <<<"$_regroup_table" | cut -f 1)
  if [[ -n $offers ]]; then
    COMPREPLY=($(compgen -W "$offers" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _regroup regroup)"},
     {"zsh", "#compdef regroup", "", "=", "'\\''", R"zsh(_regroup() {
  local -a offers=(${(f)"$(awk "$_regroup_offers" "${(@)words[2,CURRENT]}" <<<"$_regroup_table")"})
  if [[ -n $offers ]]; then
    offers=("${(@)offers/$'\t'/:}")
    _describe ${${(M)words[CURRENT]:#-*}:+-o} word offers
  else
    _files
  fi
}
if [[ $funcstack[1] == _regroup ]]; then _regroup "$@"; else compdef _regroup regroup; fi)zsh"},
     {"fish", "# fish completion for regroup", "set -g ", " ", "\\'",
      R"fish(function __regroup_offers
    set -l words (commandline -opc) "$(commandline -ct)"
    printf '%s\n' $_regroup_table | awk $_regroup_offers $words[2..]
end
complete -c regroup -n 'test (count (__regroup_offers)) -gt 0' -f -a '(__regroup_offers)')fish"}});

// A script to source, or to install where the shell looks for completions: definitions of the table
// and of the program that reads it, and what calls that program.
std::string completions_for(const Shell& shell, const CommandFacts& program) {
  std::string table = "\t\thelp\tPrint the help of a command\n";
  add_lines(program, "", table);
  for (const CommandFacts& command : program.commands) {  // `help` is none of them
    table += fmt::format("help\t\t{}\t{}\n", command.name, command.description);
  }
  return fmt::format("{0}\n{1}_regroup_table{2}{3}\n{1}_regroup_offers{2}{4}\n{5}", shell.head,
                     shell.set, shell.is, quoted(table, shell.apostrophe),
                     quoted(kOffers, shell.apostrophe), shell.script);
}

// Escapes text for roff: backslashes, hyphens that are typed, and a dot or an apostrophe at the
// beginning of a line.
std::string roff(const std::string& text) {
  std::string escaped = text;
  replace_all(escaped, "\\", "\\e");
  replace_all(escaped, "-", "\\-");
  return (text.starts_with('.') || text.starts_with('\'') ? "\\&" : "") + escaped;
}

std::string option_text(const OptionFacts& option) {
  const std::string value = option.value.empty() || option.positional
                                ? ""
                                : fmt::format(" \\fI{}\\fR", roff(option.value));
  std::string text =
      fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(option.names, ", "))),
                  value, roff(option.description));
  if (!option.choices.empty()) {
    text += roff(fmt::format("One of {}.", fmt::join(option.choices, ", "))) + "\n";
  }
  if (!option.needs.empty()) {
    text += roff(fmt::format("Has no effect without {}.", option.needs)) + "\n";
  }
  if (!option.default_value.empty()) {
    text += roff(fmt::format("Unless given: {}.", option.default_value)) + "\n";
  }
  return text;
}

std::string synopsis(const CommandFacts& command) {
  std::string text = fmt::format("\\fBregroup {}\\fR", roff(command.name));
  for (const OptionFacts& option : command.options) {
    if (option.positional) {
      const std::string name = fmt::format("\\fI{}\\fR", roff(option.names.front()));
      text += option.required ? " " + name : " [" + name + "]";
    }
  }
  return text + " [\\fIoptions\\fR]\n";
}

// Keeps the line breaks of the footer: it begins with examples.
std::string footer_text(const std::string& footer) {
  std::string text;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    text += roff(line) + "\n";
  }
  return text.empty() ? "" : ".PP\n.nf\n" + text + ".fi\n";
}

std::string command_text(const CommandFacts& command) {
  std::string text = fmt::format(".SS {}\n{}.PP\n{}.\n", roff(command.name), synopsis(command),
                                 roff(command.description));
  for (const OptionFacts& option : command.options) {
    text += option_text(option);
  }
  return text + footer_text(command.footer);
}

constexpr const char* kEnd = R"(.SH EXIT STATUS
0 done; 1 a bug; 2 wrong usage; 3 bad input; 4 the environment failed (I/O, memory, device);
5 a verification found a difference; 75 stopped with the state saved; 130 or 143 stopped by a signal
with nothing left behind.
.SH ENVIRONMENT
.TP
\fBHF_HUB_CACHE\fR, \fBHF_HOME\fR, \fBXDG_CACHE_HOME\fR
where models named \fIorg/name\fR or \fIorg/name@revision\fR are looked up.
.TP
\fBNO_COLOR\fR
set to anything: no colours.)";

// In the macros of man(7).
std::string manual_page(const CommandFacts& program) {
  std::string text = fmt::format(
      ".TH REGROUP 1 \"\" \"regroup {}\" \"User Commands\"\n.SH NAME\nregroup \\- {}\n"
      ".SH SYNOPSIS\n",
      kVersion, roff(program.description));
  for (const CommandFacts& command : whole_commands(program)) {
    text += synopsis(command) + ".br\n";
  }
  text += ".SH OPTIONS\n";
  for (const OptionFacts& option : program.options) {
    text += option_text(option);
  }
  text += ".SH COMMANDS\n";
  for (const CommandFacts& command : whole_commands(program)) {
    text += command_text(command);
  }
  return text + kEnd;
}

Json json_of(const OptionFacts& option) {
  return {{"names", option.names},           {"description", option.description},
          {"value", option.value},           {"choices", option.choices},
          {"default", option.default_value}, {"several", option.several},
          {"positional", option.positional}, {"required", option.required}};
}

// The manual as a list of {"name", "description", "options"}; of these, "several" says whether an
// option takes more than one value.
Json commands_json(const CommandFacts& program) {
  return json_list(whole_commands(program), [](const CommandFacts& command) -> Json {
    return {{"name", command.name},
            {"description", command.description},
            {"options", json_list(command.options,
                                  [](const OptionFacts& option) { return json_of(option); })}};
  });
}

}  // namespace

// regroup completions SHELL, and regroup manual

void add_completions_command(Command program, Console& console) {
  auto shell = std::make_shared<std::string>();
  Command command = add_whole_command(program, "completions");
  command.add_option("shell", *shell, "the shell: bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
  command.footer(
      "Examples: source <(regroup completions bash)\n"
      "          regroup completions fish > ~/.config/fish/completions/regroup.fish");
  command.on_run([shell, program, &console] {
    const auto chosen = std::ranges::find(kShells, *shell, &Shell::name);
    console.print(completions_for(*chosen, facts_of(program.app())));
  });
}

void add_manual_command(Command program, Console& console) {
  auto json = std::make_shared<bool>(false);
  Command command = add_whole_command(program, "manual");
  command.add_flag("--json", *json, "all commands and their options as JSON, for programs");
  command.footer("Example: regroup manual | man -l -");
  command.on_run([json, program, &console] {
    const CommandFacts facts = facts_of(program.app());
    console.print(*json ? text_of_json(commands_json(facts)) : manual_page(facts));
  });
}

}  // namespace regroup
