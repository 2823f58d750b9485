// Where the program speaks: results to stdout, notes and progress to stderr. What stderr does not
// take is lost: nobody could be told.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

/// How much to say. Results are always printed; --quiet silences everything else but errors.
enum class Verbosity { kQuiet, kNormal, kVerbose };

/// What a colour stands for; the words beside it say the same.
enum class Tint { kNone, kHeading, kGood, kBad, kNotice };

class Console {
 public:
  Console();

  void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }
  Verbosity verbosity() const { return verbosity_; }

  /// Whether stderr is a terminal that can redraw a line.
  bool redraws() const { return redraws_; }
  /// Columns of the terminal; 80 where there is none.
  int columns() const;
  /// Columns for results: those of the terminal they go to; elsewhere what COLUMNS says, or 80.
  std::size_t result_columns() const;
  /// Whether results go to a terminal.
  bool shows_results() const;
  /// A piece of a result in colour, where results go to a terminal that shows it and the
  /// environment does not refuse (https://no-color.org); the text itself elsewhere.
  std::string tinted(Tint tint, std::string_view text) const;

  /// A result, to stdout. A newline follows. Throws kEnvironment where it cannot be written.
  void print(std::string_view text) const;
  /// A result of several lines, each broken between words where the terminal is narrower; what is
  /// broken off is indented. Elsewhere lines stay whole.
  void print_facts(std::string_view text, std::size_t indent) const;
  /// The same as a note.
  void note_facts(std::string_view text, std::size_t indent) const;
  /// Something worth knowing, to stderr, unless --quiet.
  void note(std::string_view text) const;
  /// A detail, to stderr, with --verbose only.
  void detail(std::string_view text) const;
  /// One line, to stderr, always.
  void error(std::string_view text) const;

 private:
  Verbosity verbosity_ = Verbosity::kNormal;
  bool redraws_ = false;
  bool colours_ = false;
};

}  // namespace regroup
