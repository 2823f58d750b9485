#include "cli/console.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace regroup {
namespace {

void put_line(std::FILE* stream, std::string_view text) {
  fmt::print(stream, "{}\n", text);
  std::fflush(stream);
}

}  // namespace

Console::Console() {
  const char* term = std::getenv("TERM");
  redraws_ = ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

int Console::columns() const {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void Console::print(std::string_view text) const { put_line(stdout, text); }

void Console::note(std::string_view text) const {
  if (verbosity_ != Verbosity::kQuiet) {
    put_line(stderr, text);
  }
}

void Console::detail(std::string_view text) const {
  if (verbosity_ == Verbosity::kVerbose) {
    put_line(stderr, text);
  }
}

void Console::error(std::string_view text) const { put_line(stderr, text); }

}  // namespace regroup
