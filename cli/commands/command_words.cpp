#include <array>
#include <cctype>

#include <CLI/CLI.hpp>

#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

constexpr const char* kMark = "--";  // after it, no word is an option

bool is_option(const std::string& word) {
  return word.size() > 1 && word.front() == '-' && word != kMark &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

void add_options_of(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& more : {option->get_lnames(), option->get_fnames()}) {
      append(names, more);
    }
  }
}

std::string with_suggestion(std::string message, const std::string& near) {
  return near.empty() ? message : fmt::format("{}; did you mean {}?", message, near);
}

// Commands of other tools.
constexpr auto kOtherCommands = std::to_array<OtherWords>({{"uptrain", "train finetune"},
                                                           {"sample", "generate chat run"},
                                                           {"eval", "perplexity"},
                                                           {"inspect", "info show"},
                                                           {"diff", "compare"},
                                                           {"convert", "quantize"}});

std::string unknown_command(const CLI::App& app, const std::string& word) {
  if (needs_whole_program(word)) {
    return fmt::format(
        "{} needs LibTorch; this regroup was built without it "
        "(-DREGROUP_LIBTORCH=OFF)",
        word);
  }
  std::vector<std::string> names = commands_in(app);
  if (app.get_parent() == nullptr) {  // suggest commands that this build lacks, too
    append(names, mapped(whole_program_commands(), &WholeProgramCommand::name));
  }
  const std::string known = our_word(kOtherCommands, word, names);
  return with_suggestion(fmt::format("\"{}\" is not a command", printable(word)),
                         known.empty() ? nearest_name(word, names) : known);
}

std::string unknown_option(const CLI::App& program, const CLI::App& command,
                           const std::string& word) {
  std::vector<std::string> names;
  add_options_of(command, names);
  add_options_of(program, names);
  const std::string typed = word.substr(0, word.find('='));
  const std::size_t name = std::min(typed.find_first_not_of('-'), typed.size());
  const std::string plain = typed.substr(name);
  if (plain == "force" || plain.starts_with("overwrite")) {
    return fmt::format("{} is not an option: what exists is never replaced, so move it away first",
                       printable(typed));
  }
  const std::string near = meant_option(plain, names);
  if (!plain.empty() && near == plain) {
    return fmt::format("{} is an option of commands: it goes after the command", printable(typed));
  }
  return with_suggestion(fmt::format("{} is not an option", printable(typed)),
                         near.empty() ? "" : "--" + near);
}

// The option of `command`, or of a command that it belongs to, that `word` names ("--data=x").
const CLI::Option* option_named(const CLI::App* command, const std::string& word) {
  for (; is_option(word) && command != nullptr; command = command->get_parent()) {
    if (const auto* option = command->get_option_no_throw(word.substr(0, word.find('=')))) {
      return option;
    }
  }
  return nullptr;
}

// Whether `next` is the value of `option`, which `word` names. Throws if it would be by mistake.
bool check_value(const CLI::App& command, const CLI::Option& option, const std::string& word,
                 const std::string& next) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (equals != word.npos && equals + 1 == word.size()) {
    throw_usage("{}: an empty value", name);
  }
  if (equals != word.npos && !name.starts_with("--")) {
    throw_usage("{}: a short option has no =; write {} {}", printable(word), name,
                printable(word.substr(equals + 1)));
  }
  if (equals != word.npos || option.get_items_expected_max() == 0) {
    return false;
  }
  const bool like_option = next.starts_with("--") && !next.starts_with("---");
  if (like_option || option_named(&command, next) != nullptr) {
    throw_usage("{} needs a value, not {}: a value that begins so is written {}=VALUE", name,
                printable(next), option.get_name());
  }
  return true;
}

// An option with several values takes arguments that follow it.
std::string list_taken(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (!option->get_positional() && values.size() > 1) {
      return fmt::format(", for {} took {}, {} too (arguments come first)", option->get_name(),
                         printable(values.front()), printable(values.back()));
    }
  }
  return "";
}

// What CLI11 says of an argument, an option or its value; `named`: a command has been named.
std::string in_our_words(const CLI::App& program, const CLI::App& command, std::string message,
                         bool named) {
  const std::size_t missing = message.find(" required ");  // "--text: 1 required TEXT missing"
  if (message.ends_with(" missing") && missing != message.npos) {
    return message.substr(0, message.rfind(':', missing)) + " needs a value";
  }
  if (message.ends_with(" is required")) {
    const CLI::Option* option = command.get_option_no_throw(message.substr(0, message.find(' ')));
    std::string argument = option == nullptr ? "" : option->get_name(/*positional=*/true);
    std::ranges::transform(argument, argument.begin(), ::toupper);
    if (!named) {
      return fmt::format("a command is needed: one of {}", fmt::join(commands_in(command), ", "));
    }
    if (!argument.empty()) {
      message = fmt::format("{} is missing{}", argument, list_taken(command));
    }
    return fmt::format("{}: {}", message, usage_of(facts_of(command), chosen_command(program)));
  }
  constexpr std::string_view kTooMany =
      ": At Most ";  // "--pool: At Most 1 required but received 2"
  if (const std::size_t most = message.find(kTooMany); most != message.npos) {
    const std::size_t number = most + kTooMany.size();
    return fmt::format("{} has {} values, at most {} allowed", message.substr(0, most),
                       message.substr(message.rfind(' ') + 1),
                       message.substr(number, message.find(' ', number) - number));
  }
  if (const std::size_t list = message.find(" not in {"); list != message.npos) {
    std::string choices = message.substr(list + 9, message.size() - list - 10);
    replace_all(choices, ",", ", ");
    const std::size_t value = message.find(": ") + 2;  // "--pool: lowrnk"
    return fmt::format("{}\"{}\" is none of {}", message.substr(0, value),
                       message.substr(value, list - value), choices);
  }
  constexpr std::string_view kConvert = "Could not convert: ";  // "--option = maybe"
  if (const std::size_t equals = message.find(" = ");
      message.starts_with(kConvert) && equals != message.npos) {
    return fmt::format("{}: {} is neither on nor off",
                       message.substr(kConvert.size(), equals - kConvert.size()),
                       message.substr(equals + 3));
  }
  return message;
}

// Whether a word that looks like an option was taken as an argument, because it follows "--".
bool follows_mark(const CLI::App& command, const std::vector<std::string>& words,
                  const std::string& word) {
  const auto mark = std::ranges::find(words, kMark);
  return std::find(mark, words.end(), word) != words.end() &&
         (option_named(&command, word) != nullptr || std::find(words.begin(), mark, word) == mark);
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
  const auto help = std::ranges::find_if_not(words, is_option);
  if (help == words.end() || *help != "help") {
    return words;
  }
  std::vector<std::string> resolved(words.begin(), help);
  const CLI::App* app = &program;
  for (auto word = help + 1; word != words.end(); ++word) {
    if (*word == "--help" || *word == "-h") {
      continue;
    }
    const CLI::App* named = command_named(*app, *word);
    if (named == nullptr) {
      throw_usage("{} (see regroup --help)", unknown_command(*app, *word));
    }
    app = named;
    resolved.push_back(*word);
  }
  resolved.emplace_back("--help");
  return resolved;
}

std::string chosen_command(const CLI::App& program) {
  const std::string path = path_of(innermost(program));
  return path.empty() ? "regroup" : "regroup " + path;
}

std::vector<std::string> checked_words(const CLI::App& program, std::vector<std::string> words) {
  const CLI::App* command = &program;
  const CLI::Option* last = nullptr;
  std::size_t i = 0;
  for (; i < words.size() && words[i] != kMark; ++i) {
    const CLI::Option* option = option_named(command, words[i]);
    if (option == nullptr) {
      const CLI::App* named = command_named(*command, words[i]);
      command = named != nullptr ? named : command;
      continue;
    }
    last = option;
    if (check_value(*command, *option, words[i], i + 1 < words.size() ? words[i + 1] : "")) {
      ++i;
    }
  }
  if (i < words.size() && last != nullptr && last->get_items_expected_max() > 1) {
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), kMark);
  }
  return words;
}

std::string explain(const CLI::App& program, const std::vector<std::string>& words,
                    const CLI::ParseError& fault) {
  const CLI::App& command = innermost(program);
  std::vector<std::string> unknown = program.remaining(true);
  std::erase(unknown, kMark);
  const bool named = commands_in(command).empty();  // or a command of these should have been
  if (!unknown.empty() && !named && !is_option(unknown.front())) {
    return unknown_command(command, unknown.front());
  }
  const auto option = std::ranges::find_if(unknown, is_option);
  if (option != unknown.end()) {
    return follows_mark(command, words, *option)
               ? fmt::format("{} follows --, after which no word is an option", printable(*option))
               : unknown_option(program, command, *option);
  }
  if (!unknown.empty() && named && command.get_option_no_throw("--prompt") != nullptr) {
    return fmt::format("{} was not expected: a text to answer is named by --prompt",
                       printable(unknown.front()));
  }
  if (!unknown.empty() && named && command.get_option_no_throw("--text") != nullptr) {
    return fmt::format(
        "{} was not expected: a text is named by --text{}", printable(unknown.front()),
        command.get_option_no_throw("--data") != nullptr ? ", a token file by --data" : "");
  }
  if (!unknown.empty() && named) {
    return fmt::format("{} was not expected: {}", printable(unknown.front()),
                       usage_of(facts_of(command), chosen_command(program)));
  }
  const std::string message = fault.what();
  return printable(in_our_words(program, command, message.substr(0, message.find('\n')), named), 0);
}

}  // namespace regroup
