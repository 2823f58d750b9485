// A command of the program and its options. These two classes hide CLI11: including its headers
// adds ten seconds to the compile time of a file.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace regroup {

/// The heading of Command::most_used() in the help.
inline constexpr const char* kMostUsed = "Most used";
/// The help of arguments that name a model to compute, one to train, and any weight file.
inline constexpr const char* kModelHelp =
    "model directory, GGUF file, or org/name in the hub's local cache";
inline constexpr const char* kTrainedHelp = "model directory, or org/name in the hub's local cache";
inline constexpr const char* kCheckpointHelp =
    "model directory, one weight file or its index, or org/name in the hub's local cache";

/// An option of a command. Each call changes one property and returns the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  /// Refuses every other value. Names of other tools are understood: "bfloat16" is "bf16", "hf"
  /// "safetensors".
  Option one_of(const std::vector<std::string>& values);
  /// The default that the help shows in place of the variable's value; empty: none is shown, nor
  /// for an option whose text states its "(default: …)".
  Option default_text(const std::string& text);
  /// The name of the value in the help, such as "COUNT".
  Option value_name(const std::string& name);
  /// Refuses a command line that has this option and `other`.
  Option excludes(const std::string& other);

 private:
  CLI::Option* option_;
};

/// A word of ours, and those that other tools use for the same, separated by spaces.
struct OtherWords {
  std::string_view ours, theirs;
};

/// Which of `ours` has `word` in its row of the table; empty if none has.
std::string our_word(std::span<const OtherWords> table, std::string_view word,
                     const std::vector<std::string>& ours);

/// Which of `names` ("lr", without dashes) a word most likely means: the option that other tools
/// call so ("learning_rate", "batch-size"), or one that it misspells; empty if none is near.
std::string meant_option(std::string_view typed, const std::vector<std::string>& names);

/// The names of the commands that were added to a program or a group of commands, in order.
std::vector<std::string> commands_in(const CLI::App& app);

/// The one of these with that name; null if there is none.
CLI::App* command_named(const CLI::App& app, const std::string& name);

/// The words that name a command: "convert", "bench decode"; empty for the program.
std::string path_of(const CLI::App& command);

/// A command, or the program as a whole. A copy refers to the same command. Variables passed to
/// add_option() and add_flag() must outlive the program; the help shows their current value as the
/// default.
class Command {
 public:
  Command(CLI::App& app) : app_(&app) {}  // NOLINT(google-explicit-constructor): a view of it

  Command add_command(const std::string& name, const std::string& description);

  /// Leaves the command's section of a --config file unread: another program has its options.
  void ignore_config_file();

  /// `names`: "-o,--output"; a name without dashes is a positional argument.
  /// `value` is a string, a path, a list of either, or a bool.
  template <typename Value>
  Option add_option(const std::string& names, Value& value, const std::string& text);
  /// An option with one value, which is passed to `take` as typed.
  Option add_value(const std::string& names, const std::function<void(const std::string&)>& take,
                   const std::string& text);

  Option add_flag(const std::string& names, bool& value, const std::string& text);
  /// For "--resume{yes}", `--resume` sets `value` to "yes" and `--resume=auto` sets it to "auto".
  Option add_flag(const std::string& names, std::string& value, const std::string& text);
  /// For "--bos,!--no-bos", `value` becomes true by --bos and false by --no-bos.
  Option add_flag(const std::string& names, std::optional<bool>& value, const std::string& text);

  /// The heading in the help above the options that are added from now on.
  void begin_group(const std::string& heading);
  /// Lists these options first in the help.
  void most_used(const std::vector<std::string>& options);

  /// Text that follows the list of options in the help.
  void footer(const std::string& text);
  /// The command line must also name one of the commands that were added to this one.
  void needs_command();
  /// `run` is called after the command line is parsed, if it names this command.
  void on_run(const std::function<void()>& run);

  std::string name() const;
  /// Whether the command line or a config file sets this option, such as "--seed".
  bool given(const std::string& option) const;

  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

/// An option whose value is one of `words`: `value` becomes what `parse` makes of the word, and
/// must outlive `command`. The help shows the word of its current value as the default.
template <typename Value, typename Parse>
Option add_word(Command command, const std::string& names, Value& value, const std::string& text,
                const std::vector<std::string>& words, Parse parse) {
  const auto present =
      std::ranges::find_if(words, [&](const auto& word) { return value == parse(word); });
  return command
      .add_value(
          names, [&value, parse](const std::string& typed) { value = parse(typed); }, text)
      .value_name("TEXT")
      .one_of(words)
      .default_text(present == words.end() ? "" : *present);
}

/// Adds an option that takes one of the words in `named` and sets `value` to what the word stands
/// for. Both must outlive `command`.
template <typename Value, typename Named>
Option add_word(Command command, const std::string& names, Value& value, const std::string& text,
                const std::map<std::string, Named>& named) {
  std::vector<std::string> words;
  for (const auto& each : named) {
    words.push_back(each.first);
  }
  return add_word(command, names, value, text, words,
                  [&named](const std::string& word) { return named.at(word); });
}

}  // namespace regroup
