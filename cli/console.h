// Where the program speaks: results to stdout, notes and progress to stderr.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// How much to say. Results are always printed; --quiet silences everything else but errors.
enum class Verbosity { kQuiet, kNormal, kVerbose };

class Console {
 public:
  Console();

  void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }
  Verbosity verbosity() const { return verbosity_; }

  /// Whether stderr is a terminal that can redraw a line.
  bool redraws() const { return redraws_; }
  /// Columns of the terminal; 80 where there is none.
  int columns() const;

  /// A result, to stdout. A newline follows.
  void print(std::string_view text) const;
  /// Something worth knowing, to stderr, unless --quiet.
  void note(std::string_view text) const;
  /// A detail, to stderr, with --verbose only.
  void detail(std::string_view text) const;
  /// One line, to stderr, always.
  void error(std::string_view text) const;

 private:
  Verbosity verbosity_ = Verbosity::kNormal;
  bool redraws_ = false;
};

}  // namespace regroup
