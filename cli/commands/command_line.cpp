#include "cli/commands/command_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/shell/option_needs.h"
#include "cli/shell/text.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

// Options whose values are words; all other TEXT names a file or a folder.
constexpr auto kWords = std::to_array<std::string_view>(
    {"--attention", "--document-separator", "--field", "--filter", "--objective", "--prompt"});

// CLI11 describes allowed values as "TEXT:{a,b,c}".
std::vector<std::string> choices_in(const std::string& type) {
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) {
    return {};
  }
  const auto choices = split(std::string_view(type).substr(open + 1, close - open - 1), ',');
  return {choices.begin(), choices.end()};
}

// One entry for the named form of an option, one for its positional form; most have only one.
std::vector<OptionFacts> facts_of_option(const CLI::Option& option, const std::string& command) {
  OptionFacts facts;
  facts.names = mapped(option.get_lnames(), [](const std::string& name) { return "--" + name; });
  append(facts.names,
         mapped(option.get_snames(), [](const std::string& name) { return "-" + name; }));
  facts.description = option.get_description();
  facts.group = option.get_group();
  facts.excludes =
      mapped(option.get_excludes(), [](const CLI::Option* other) { return other->get_name(); });
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    facts.several = option.get_items_expected_max() > 1;
    facts.value = type.substr(0, type.find_first_of(":{"));
    if (facts.value == "TEXT" && !contains(kWords, option.get_name())) {
      facts.value = "PATH";
    }
    facts.choices = type == "BOOLEAN" ? std::vector<std::string>{"on", "off"} : choices_in(type);
    if (facts.description.find("(default") == std::string::npos) {
      facts.default_value = option.get_default_str();
    }
  }
  for (const std::string& name : facts.names) {
    facts.needs += facts.needs.empty() ? text_of_needs(command, name) : "";
  }
  std::vector<OptionFacts> ways;
  if (option.get_positional()) {
    OptionFacts positional = facts;
    positional.positional = true;
    positional.names = {option.get_name(true)};
    positional.required = option.get_required();
    ways.push_back(std::move(positional));
  } else {
    facts.required = option.get_required();
  }
  if (!facts.names.empty()) {
    ways.push_back(std::move(facts));
  }
  return ways;
}

constexpr std::size_t kNameColumns = 24;

// A name and its description: to the right of the name, or below a name that is too long.
std::string entry(const std::string& name, const std::string& description, std::size_t columns) {
  const std::size_t indent = columns < 3 * kNameColumns ? 6 : kNameColumns;
  const std::string left = "  " + name;
  const bool fits = width_of(left) + 2 <= indent;
  const std::string gap(fits ? indent - width_of(left) : indent, ' ');
  return wrapped(left + (fits ? "" : "\n") + gap + description, columns, indent) + "\n";
}

// "mean|first|random|lowrank"; empty if that is too long for the left column.
std::string choices_of(const OptionFacts& option) {
  const std::string choices = fmt::format("{}", fmt::join(option.choices, "|"));
  return choices.size() > 2 * kNameColumns ? "" : choices;
}

// "--pool mean|first|random|lowrank", "-o, --output PATH", "SOURCE".
std::string name_of(const OptionFacts& option) {
  if (option.positional) {
    std::string name = option.names.front();
    std::ranges::transform(name, name.begin(), ::toupper);
    return name;
  }
  const std::string choices = choices_of(option);
  const std::string& value = choices.empty() ? option.value : choices;
  return fmt::format("{}{}{}", fmt::join(option.names, ", "), value.empty() ? "" : " ", value);
}

std::string description_of(const OptionFacts& option) {
  std::vector<std::string> more;
  if (!option.choices.empty() && choices_of(option).empty()) {
    more.push_back(fmt::format("one of {}", fmt::join(option.choices, ", ")));
  }
  if (option.required && !option.positional) {
    more.emplace_back("required");
  }
  if (!option.default_value.empty() && option.default_value != "[]") {
    more.push_back("default: " + option.default_value);
  }
  if (!option.needs.empty()) {
    more.push_back("with " + option.needs);
  }
  if (!option.excludes.empty()) {
    more.push_back(fmt::format("not with {}", fmt::join(option.excludes, ", ")));
  }
  const std::string& text = option.description;
  if (more.empty()) {
    return text;
  }
  const std::size_t own = text.rfind("(default");  // of a text that ends with its default
  const bool joined = own != text.npos && text.find(')', own) + 1 == text.size();
  return fmt::format("{}{}{})", joined ? text.substr(0, text.size() - 1) : text,
                     joined ? "; " : " (", fmt::join(more, "; "));
}

// The headings in the order of their options, the most used before them, --help's after them.
std::vector<std::string> groups_of(const CommandFacts& command) {
  std::vector<std::string> groups{kMostUsed};
  for (const OptionFacts& option : command.options) {
    if (!option.positional && !contains(groups, option.group)) {
      groups.push_back(option.group);
    }
  }
  const auto general = std::ranges::find(groups, "Options");
  if (general != groups.end()) {
    std::rotate(general, general + 1, groups.end());
  }
  return groups;
}

std::string options_text(const CommandFacts& command, std::size_t columns) {
  std::string text;
  for (const std::string& group : groups_of(command)) {
    std::string entries;
    for (const OptionFacts& option : command.options) {
      if (!option.positional && option.group == group) {
        entries += entry(name_of(option), description_of(option), columns);
      }
    }
    text += entries.empty() ? "" : fmt::format("\n{}:\n{}", group, entries);
  }
  return text;
}

// Those that most people need first, in the order of their use, before all others.
std::string commands_text(const CommandFacts& command, std::size_t columns) {
  constexpr std::array<std::string_view, 7> kFirst{"inspect", "plan", "convert", "verify",
                                                   "sample",  "eval", "uptrain"};
  std::array<std::string, kFirst.size() + 1> texts;
  for (const CommandFacts& part : command.commands) {
    const auto place = std::ranges::find(kFirst, part.name) - kFirst.begin();
    texts.at(static_cast<std::size_t>(place)) += entry(part.name, part.description, columns);
  }
  const std::string first = fmt::format("{}", fmt::join(texts.begin(), texts.end() - 1, ""));
  const std::string& others = texts.back();
  return (first.empty() ? "" : "\nMost used:\n" + first) +
         (others.empty() ? "" : (first.empty() ? "\nCommands:\n" : "\nMore:\n") + others);
}

// A line of an example, such as "Example: regroup diff A B" or "Recipe: --lr 1"; all others are
// sentences.
bool is_command(const std::string& line) {
  return line.starts_with(' ') || line.find(": --") != line.npos ||
         (line.find(": ") != line.npos && line.find("regroup ") != line.npos);
}

// The examples, with backslashes where they are too long, and after them the sentences.
std::string examples_and_sentences(const std::string& footer, std::size_t columns) {
  constexpr std::size_t kMore = 13;  // of continuation lines
  std::string examples, sentences;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (!is_command(line)) {
      sentences += (sentences.empty() ? "" : " ") + line;
      continue;
    }
    for (std::size_t end; width_of(line) > columns;) {
      end = line.rfind(' ', columns - 2);
      if (end == line.npos || end <= kMore) {
        break;
      }
      examples += line.substr(0, end) + " \\\n";
      line = std::string(kMore, ' ') + line.substr(end + 1);
    }
    examples += line + "\n";
  }
  return examples + wrapped(sentences, columns, 0);
}

}  // namespace

CommandFacts facts_of(const CLI::App& app) {
  CommandFacts facts{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {  // hidden options have no group
      append(facts.options, facts_of_option(*option, path_of(app)));
    }
  }
  for (const std::string& name : commands_in(app)) {
    facts.commands.push_back(facts_of(*command_named(app, name)));
  }
  return facts;
}

std::vector<CommandFacts> whole_commands(const CommandFacts& program) {
  std::vector<CommandFacts> commands;
  for (const CommandFacts& command : program.commands) {
    if (command.commands.empty()) {
      commands.push_back(command);
    }
    for (CommandFacts part : whole_commands(command)) {
      part.name = command.name + " " + part.name;
      commands.push_back(std::move(part));
    }
  }
  return commands;
}

std::string usage_of(const CommandFacts& command, const std::string& name) {
  std::string usage = name, options;
  for (const OptionFacts& option : command.options) {
    if (option.positional) {
      usage += fmt::format(fmt::runtime(option.required ? " {}" : " [{}]"), name_of(option));
    } else if (option.required) {
      options += fmt::format(" {} {}", option.names.front(), option.value);
    }
  }
  return fmt::format("{}{}{} [OPTIONS]", usage, options,
                     command.commands.empty() ? "" : " COMMAND");
}

std::string help_text(const CommandFacts& command, const std::string& name, std::size_t columns) {
  std::string arguments;
  for (const OptionFacts& option : command.options) {
    arguments += option.positional ? entry(name_of(option), description_of(option), columns) : "";
  }
  return fmt::format("{}\n\n{}\n{}{}{}{}\n{}", wrapped(command.description, columns, 0),
                     wrapped("Usage: " + usage_of(command, name), columns, 7),
                     arguments.empty() ? "" : "\n", arguments, commands_text(command, columns),
                     options_text(command, columns),
                     examples_and_sentences(command.footer, columns));
}

}  // namespace regroup
