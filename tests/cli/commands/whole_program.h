// The whole command line without the commands themselves: what it accepts and refuses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"
#include "cli/program.h"
#include "cli/shell/console.h"
#include "cli/shell/option_needs.h"
#include "formats/base/error.h"

namespace regroup {

class WholeProgram {
 public:
  WholeProgram() {
    prepare_program(app_, console_);
    add_all_commands(app_, console_);
    app_.parse_complete_callback([this] {
      check_options(app_);
      throw Understood();
    });
  }

  CommandFacts facts() { return facts_of(app_); }

  /// The reason why these words are refused. Empty if they are accepted.
  std::string refusal(const std::vector<std::string>& typed) {
    try {
      const std::vector<std::string> words = checked_words(app_, typed);
      app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const Understood&) {
      return "";
    } catch (const CLI::ParseError& fault) {
      return fault.what();
    } catch (const Error& fault) {
      return fault.what();
    }
    return "";
  }

 private:
  struct Understood {};  // thrown instead of running the command

  Console console_;
  CLI::App app_{"", "regroup"};
};

/// The reason why a new program refuses these words. Empty if it accepts them.
inline std::string refusal_of_words(const std::vector<std::string>& words) {
  return WholeProgram().refusal(words);
}

/// "bench decode" -> its two words.
inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// The words of a command with a value for each required option and argument.
inline std::vector<std::string> with_required(const CommandFacts& command) {
  std::vector<std::string> words = words_of(command.name);
  for (const OptionFacts& option : command.options) {
    if (option.required && !option.positional) {
      words.push_back(option.names.front());
    }
    if (option.required) {
      words.push_back(option.choices.empty() ? "1" : option.choices.front());
    }
  }
  return words;
}

}  // namespace regroup
