// A command of the program and its options. CLI11 stays behind these two classes: every file that
// includes its headers takes ten seconds longer to compile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace regroup {

/// An option of a command. Each call describes it further and returns it again.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  /// Refuses every other value.
  Option one_of(const std::vector<std::string>& values);
  template <typename Value>
  Option one_of(const std::map<std::string, Value>& named) {
    std::vector<std::string> values;
    for (const auto& each : named) {
      values.push_back(each.first);
    }
    return one_of(values);
  }
  /// What the help shows as the default in place of the variable's value; empty: nothing.
  Option default_text(const std::string& text);
  /// What the help calls the value: "COUNT".
  Option value_name(const std::string& name);
  /// Refuses both at once.
  Option excludes(const std::string& other);

  bool given() const;

 private:
  CLI::Option* option_;
};

/// A command, or the program as a whole; a copy is the same command. Variables must live as long as
/// the program; what they hold when they are added is shown as the default.
class Command {
 public:
  Command(CLI::App& app) : app_(&app) {}  // NOLINT(google-explicit-constructor): a view of it

  Command add_command(const std::string& name, const std::string& description);

  /// `names` are "-o,--output"; without dashes, an argument by its place.
  Option add_option(const std::string& names, std::string& value, const std::string& text);
  Option add_option(const std::string& names, std::filesystem::path& value,
                    const std::string& text);
  Option add_option(const std::string& names, bool& value, const std::string& text);
  Option add_option(const std::string& names, std::vector<std::string>& values,
                    const std::string& text);
  Option add_option(const std::string& names, std::vector<std::filesystem::path>& values,
                    const std::string& text);
  /// An option of one value, given to `take` as it was typed.
  Option add_option(const std::string& names, const std::function<void(const std::string&)>& take,
                    const std::string& text);

  Option add_flag(const std::string& names, bool& value, const std::string& text);
  /// "--resume{yes}": what the flag stands for is written to `value`, or what follows its "=".
  Option add_flag(const std::string& names, std::string& value, const std::string& text);
  /// "--bos,!--no-bos": `take` gets true or false.
  Option add_flag(const std::string& names, const std::function<void(bool)>& take,
                  const std::string& text);

  void footer(const std::string& text);
  void needs_command();  ///< one of those added to it must be named, too
  void on_run(const std::function<void()>& run);

  std::string name() const;
  bool given(const std::string& option) const;

  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace regroup
