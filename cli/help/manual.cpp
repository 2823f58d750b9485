#include "cli/help/manual.h"

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/version.h"

namespace regroup {
namespace {

// Escapes text for roff: backslashes, hyphens that are typed, and a dot or an apostrophe at the
// beginning of a line.
std::string roff(const std::string& text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    result += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return result;
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

}  // namespace

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

}  // namespace regroup
