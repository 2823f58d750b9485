#include "cli/shell/console.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/shell/standard_streams.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"

namespace regroup {
namespace {

// Returns whether all of it was written.
bool put(std::FILE* stream, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stream) == text.size() &&
         std::fflush(stream) == 0;
}

// Ignores write errors: a closed stderr must not stop the work.
void put_message(std::string_view text) {
  static_cast<void>(put(stderr, std::string(text) + '\n'));
}

// Returns 80 if the width is unknown.
int columns_of(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// A message as long lines, or wrapped between words on a terminal that people read.
std::string fitted(std::string_view text, std::size_t indent, ProgressFormat format) {
  const bool wraps = format == ProgressFormat::kText && ::isatty(STDERR_FILENO) == 1;
  const auto width = static_cast<std::size_t>(std::max(columns_of(STDERR_FILENO), 20));
  return wraps ? wrapped(text, width, indent) : std::string(text);
}

// Parameters of ECMA-48 SGR sequences.
std::string_view code_of(Tint tint) {
  switch (tint) {
    case Tint::kHeading: return "1";
    case Tint::kGood: return "32";
    case Tint::kBad: return "31";
    case Tint::kNotice: return "33";
    case Tint::kNone: break;
  }
  return "";
}

}  // namespace

Console::Console() {
  const char* term = std::getenv("TERM");
  const bool capable = term != nullptr && std::strcmp(term, "dumb") != 0;
  redraws_ = capable && ::isatty(STDERR_FILENO) == 1;
  const char* refused = std::getenv("NO_COLOR");
  colours_ = capable && ::isatty(STDOUT_FILENO) == 1 && (refused == nullptr || refused[0] == '\0');
}

int Console::columns() const { return columns_of(STDERR_FILENO); }

bool Console::shows_results() const { return ::isatty(STDOUT_FILENO) == 1; }

std::size_t Console::result_columns() const {
  constexpr int kFewest = 20;
  return shows_results() ? static_cast<std::size_t>(std::max(columns_of(STDOUT_FILENO), kFewest))
                         : std::numeric_limits<std::size_t>::max();
}

std::string Console::stage_of(std::string_view label) const {
  const auto found = std::ranges::find(stages_, label);
  return found == stages_.end()
             ? ""
             : fmt::format("{}/{} ", found - stages_.begin() + 1, stages_.size());
}

std::string Console::tinted(Tint tint, std::string_view text) const {
  return colours_ && tint != Tint::kNone ? fmt::format("\x1b[{}m{}\x1b[0m", code_of(tint), text)
                                         : std::string(text);
}

void Console::print(std::string_view text) const { print_part(std::string(text) + '\n'); }

void Console::print_part(std::string_view text) const {
  if (!put(stdout, text)) {
    if (errno == EPIPE) {  // `| head` has what it wants
      request_interrupt(SIGPIPE);
      throw Error(ErrorKind::kInterrupted, "standard output: nobody reads it any more");
    }
    throw_environment("standard output: cannot write: {}", std::strerror(errno));
  }
}

void Console::note(std::string_view text, std::size_t indent) const {
  const Verbosity least = text.starts_with("warning: ") ? Verbosity::kQuiet : Verbosity::kNormal;
  if (verbosity_ >= least) {
    put_message(fitted(text, indent, progress_format_));
  }
}

void Console::notes(std::string_view kind, const std::vector<std::string>& texts) const {
  for (const std::string& text : texts) {
    if (!text.empty()) {
      note(fmt::format("{}: {}", kind, text));
    }
  }
}

void Console::print_facts(std::string_view text, std::size_t indent) const {
  print(shows_results() ? wrapped(text, result_columns(), indent) : std::string(text));
}

void Console::detail(std::string_view text) const {
  if (verbosity_ == Verbosity::kVerbose) {
    put_message(text);
  }
}

void Console::error(std::string_view text) const { put_message(fitted(text, 2, progress_format_)); }

std::string text_of_shortage(const std::exception& fault) {
  const auto* known = dynamic_cast<const OutOfMemory*>(&fault);
  return known != nullptr && *known->what() != '\0'
             ? fmt::format("out of memory: {}", known->what())
             : std::string("out of memory");
}

void run_or_note(const Console& console, std::string_view what, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    console.note(fmt::format("{}: {}", what, fault.what()));
  } catch (const std::bad_alloc& fault) {
    console.note(fmt::format("{}: {}", what, text_of_shortage(fault)));
  }
}

}  // namespace regroup
