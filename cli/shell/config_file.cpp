#include "cli/shell/config_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
namespace {
struct NoToml {};
[[noreturn]] void refuse_assumption() { throw NoToml(); }
}  // namespace

// Malformed text ("[" at the end of a line) violates assertions of toml++ 3.3, which is undefined
// behaviour in builds without assertions. Here a violated assertion throws, in every build.
#undef NDEBUG
#define TOML_ASSERT(expr) (static_cast<bool>(expr) ? void() : refuse_assumption())
#include <toml++/toml.h>

#include "cli/shell/command.h"
#include "cli/shell/quantity.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

// Dots in keys nest tables, which are visited recursively. This limit keeps the recursion within
// the stack; config files have a few lines.
constexpr std::uint64_t kMaxBytes = 16U << 10;

// The code point of a well-formed UTF-8 sequence.
char32_t code_point(std::string_view sequence) {
  constexpr std::array<unsigned char, 5> kLeadBits{0, 0x7f, 0x1f, 0x0f, 0x07};
  char32_t value = static_cast<unsigned char>(sequence.front()) & kLeadBits[sequence.size()];
  for (const char c : sequence.substr(1)) {
    value = value << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  return value;
}

// TOML in ASCII, rewritten line by line. toml++ 3.3 has undefined behaviour for non-ASCII
// characters outside of strings, and in invalid TOML it may find other string boundaries than this
// class does. Non-ASCII characters become escapes within double quotes and are dropped with the
// comments that contain them. Throws kUsage, as `shown`:line, for non-ASCII characters elsewhere,
// invalid UTF-8, control characters, and multi-line strings, which no option needs.
class AsciiText {
 public:
  AsciiText(std::string_view text, std::string_view shown) : shown_(shown) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++number_;
      add_line(text.substr(begin, end - begin));
      ascii_ += '\n';
      begin = end + 1;
    }
  }

  const std::string& text() const { return ascii_; }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw_usage("{}:{}: {}", shown_, number_, why);
  }

  void add_line(std::string_view line) {
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (std::ranges::any_of(line, is_control)) {
      refuse("a control character");
    }
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote == 0 && c == '#') {
        return;
      }
      if (is_past_ascii(c)) {
        i += add_escape(line, i, quote) - 1;
        continue;
      }
      ascii_ += c;
      if (quote == '"' && c == '\\' && i + 1 < line.size()) {
        ascii_ += escaped(line[++i]);
      } else if (quote != 0) {
        quote = c == quote ? '\0' : quote;
      } else if (c == '"' || c == '\'') {
        quote = opened_by(line.substr(i));
      }
    }
  }

  // Returns the length of the sequence.
  std::size_t add_escape(std::string_view line, std::size_t at, char quote) {
    const std::size_t length = utf8_sequence(line, at);
    if (length == 0) {
      refuse("bytes that are not UTF-8");
    }
    if (quote != '"') {
      refuse(quote == 0 ? "a non-ASCII character outside of quotes"
                        : "a non-ASCII character in single quotes; use double quotes");
    }
    ascii_ +=
        fmt::format("\\U{:08x}", static_cast<std::uint32_t>(code_point(line.substr(at, length))));
    return length;
  }

  char escaped(char c) const {
    if (is_past_ascii(c)) {
      refuse("a backslash before a non-ASCII character");
    }
    return c;
  }

  char opened_by(std::string_view rest) const {
    if (rest.starts_with(std::string(3, rest.front()))) {
      refuse("a multi-line string, which no option takes");
    }
    return rest.front();
  }

  static bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }
  static bool is_past_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

  std::string_view shown_;
  std::size_t number_ = 0;
  std::string ascii_;
};

class ConfigFile {
 public:
  explicit ConfigFile(std::string shown) : shown_(std::move(shown)) {}

  template <typename... Args>
  [[noreturn]] void refuse(const toml::source_region& where, fmt::format_string<Args...> format,
                           Args&&... args) const {
    throw_usage("{}:{}: {}", shown_, where.begin.line,
                fmt::format(format, std::forward<Args>(args)...));
  }

  void apply(CLI::App& command, const toml::table& table) {
    if (command.get_allow_config_extras() == CLI::config_extras_mode::capture) {
      return;  // Command::ignore_config_file()
    }
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      CLI::App* inner = node.is_table() ? command_named(command, name) : nullptr;
      if (inner != nullptr) {
        apply(*inner, *node.as_table());
        continue;
      }
      CLI::Option* option = node.is_table() ? nullptr : option_named(command, name);
      if (option == nullptr || name == "config" || name == "help" || name == "version") {
        refuse_name(command, name, node.is_table(), key.source());
      }
      set(*option, name, node);
    }
  }

 private:
  static CLI::Option* option_named(CLI::App& command, const std::string& name) {
    CLI::Option* option = command.get_option_no_throw("--" + name);
    return option != nullptr ? option : command.get_option_no_throw(name);
  }

  [[noreturn]] void refuse_name(CLI::App& command, const std::string& name, bool table,
                                const toml::source_region& where) const {
    std::vector<std::string> names;
    if (table) {
      names = commands_in(command);
    } else {
      for (const CLI::Option* each : command.get_options()) {
        append(names, each->get_lnames());
      }
    }
    for (CLI::App* each : command.get_subcommands()) {  // the command that runs
      if (!table && option_named(*each, name) != nullptr) {
        refuse(where, "\"{0}\" is an option of {1}: write [{1}] on a line above it",
               printable(name), each->get_name());
      }
    }
    const std::string near = table ? nearest_name(name, names) : meant_option(name, names);
    refuse(where, "\"{}\" is not {} of {}{}", printable(name), table ? "a command" : "an option",
           command.get_name(), near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
  }

  void set(CLI::Option& option, const std::string& name, const toml::node& node) const {
    std::vector<std::string> values;
    if (option.get_items_expected_max() == 0) {
      values = flag_values(option, name, node);
    } else if (const toml::array* array = node.as_array()) {
      values = values_in(option, name, *array);
    } else {
      values.push_back(text_of(option, name, node));
    }
    if (!option.empty() || values.empty()) {
      return;  // the command line prevails
    }
    try {
      option.add_result(values);
      option.run_callback();
    } catch (const CLI::ParseError& fault) {
      const std::string message = fault.what();
      refuse(node.source(), "{}", printable(message.substr(0, message.find('\n')), 0));
    } catch (const Error& fault) {
      refuse(node.source(), "{}", fault.what());
    }
  }

  // A flag is true or false. A flag with values (--resume=auto) may also be set to one of them; for
  // such a flag, false is the same as leaving it out.
  std::vector<std::string> flag_values(const CLI::Option& option, const std::string& name,
                                       const toml::node& node) const {
    const bool has_values = option.get_type_name().find('{') != std::string::npos;
    if (!node.is_boolean() && !(node.is_string() && has_values)) {
      refuse(node.source(), "{} is true or false, not a {}", name, kind_of(node));
    }
    if (!node.is_boolean()) {
      return {text_of(option, name, node)};
    }
    if (node.as_boolean()->get()) {
      return {option.get_flag_value(name, "")};
    }
    return has_values ? std::vector<std::string>()
                      : std::vector<std::string>{option.get_flag_value(name, "false")};
  }

  std::vector<std::string> values_in(const CLI::Option& option, const std::string& name,
                                     const toml::array& array) const {
    std::vector<std::string> values;
    for (const toml::node& node : array) {
      values.push_back(text_of(option, name, node));
    }
    if (option.get_items_expected_max() > 1 && !values.empty()) {
      return values;
    }
    if (option.get_type_name() != kCounts || values.empty()) {
      refuse(array.source(), "{} takes {}, not a list of {}", name,
             values.empty() ? "a value" : "one value", values.size());
    }
    return {fmt::format("{}", fmt::join(values, ","))};
  }

  // The value as one would type it on the command line.
  std::string text_of(const CLI::Option& option, const std::string& name,
                      const toml::node& node) const {
    const std::string type = option.get_type_name();
    const bool number = type.ends_with(kCount) || type == kCounts || type == kNumber;
    if (const auto* text = node.as_string()) {
      if (text->get().empty() || printable(text->get(), 0) != text->get()) {
        refuse(node.source(), "{}: {}", name,
               text->get().empty() ? "an empty value" : "unprintable characters in the value");
      }
      return text->get();
    }
    if (const auto* integer = node.as_integer(); integer != nullptr && number) {
      return fmt::format("{}", integer->get());
    }
    if (const auto* real = node.as_floating_point(); real != nullptr && number) {
      const std::string digits = fmt::format("{}", real->get());
      return digits.find_first_not_of("-0123456789") == digits.npos ? digits + ".0" : digits;
    }
    if (const auto* truth = node.as_boolean(); truth != nullptr && type == "BOOLEAN") {
      return truth->get() ? "true" : "false";
    }
    refuse(node.source(), "{} is a {}, {} is needed", name, kind_of(node),
           number              ? "a number"
           : type == "BOOLEAN" ? "true or false"
           : type == kSize     ? "a size such as \"5GB\""
           : type == kRate     ? "a rate such as \"3.35TB/s\""
                               : "a string");
  }

  static std::string_view kind_of(const toml::node& node) {
    switch (node.type()) {
      case toml::node_type::table: return "table";
      case toml::node_type::array: return "list";
      case toml::node_type::string: return "string";
      case toml::node_type::integer: return "whole number";
      case toml::node_type::floating_point: return "number";
      case toml::node_type::boolean: return "boolean";
      default: return "date or time";
    }
  }

  std::string shown_;
};

}  // namespace

void apply_config_file(CLI::App& program, const std::filesystem::path& path) {
  const std::string text = read_text(path, kMaxBytes);
  const std::string shown = printable_path(path);
  ConfigFile config(shown);
  const AsciiText ascii(text, shown);
  try {
    config.apply(program, toml::parse(ascii.text()));
  } catch (const toml::parse_error& fault) {
    if (const std::filesystem::path kind = path.extension();
        kind == ".yaml" || kind == ".yml" || kind == ".json") {
      throw_usage("{}: a config file is TOML, such as: [uptrain] and below it lr = 2e-4", shown);
    }
    config.refuse(fault.source(), "{}", printable(fault.description(), 0));
  } catch (const NoToml&) {
    throw_usage("{}: not valid TOML: a table or key has no name", shown);
  }
}

}  // namespace regroup
