#include "cli/help/completions.h"

#include <fmt/format.h>

namespace regroup {
namespace {

// Prints what may follow the words of a command line, given as arguments, of which the last is
// being typed: words and descriptions. Reads the lines of table_of().
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
std::string quoted(const std::string& text, std::string_view apostrophe) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? apostrophe : std::string_view(&c, 1);
  }
  return result + "'";
}

// `script` after definitions of the table and of the program that reads it. Definitions begin with
// `set`, names end with `is`.
std::string with_table(const CommandFacts& program, std::string_view set, std::string_view is,
                       std::string_view apostrophe, std::string_view script) {
  std::string table;
  add_lines(program, "", table);
  return fmt::format("{0}_regroup_table{1}{2}\n{0}_regroup_offers{1}{3}\n{4}", set, is,
                     quoted(table, apostrophe), quoted(kOffers, apostrophe), script);
}

}  // namespace

std::string bash_completions(const CommandFacts& program) {
  return "# bash completion for regroup\n" + with_table(program, "", "=", "'\\''", R"(_regroup() {
  local IFS=$'\n' current=${COMP_WORDS[COMP_CWORD]} offers
  offers=$(awk "$_regroup_offers" "${COMP_WORDS[@]:1:COMP_CWORD}" <<<"$_regroup_table" | cut -f 1)
  if [[ -n $offers ]]; then
    COMPREPLY=($(compgen -W "$offers" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _regroup regroup)");
}

std::string zsh_completions(const CommandFacts& program) {
  return "#compdef regroup\n" + with_table(program, "", "=", "'\\''", R"zsh(_regroup() {
  local -a offers=(${(f)"$(awk "$_regroup_offers" "${(@)words[2,CURRENT]}" <<<"$_regroup_table")"})
  if [[ -n $offers ]]; then
    offers=("${(@)offers/$'\t'/:}")
    _describe ${${(M)words[CURRENT]:#-*}:+-o} word offers
  else
    _files
  fi
}
if [[ $funcstack[1] == _regroup ]]; then _regroup "$@"; else compdef _regroup regroup; fi)zsh");
}

std::string fish_completions(const CommandFacts& program) {
  return "# fish completion for regroup\n" +
         with_table(program, "set -g ", " ", "\\'", R"fish(function __regroup_offers
    set -l words (commandline -opc) "$(commandline -ct)"
    printf '%s\n' $_regroup_table | awk $_regroup_offers $words[2..]
end
complete -c regroup -n 'test (count (__regroup_offers)) -gt 0' -f -a '(__regroup_offers)')fish");
}

}  // namespace regroup
