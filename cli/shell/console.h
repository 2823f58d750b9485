// The program's output: results go to stdout, notes and progress to stderr. Failed writes to stderr
// are ignored: there is no other place to report them.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup {

/// How much to print. Results, warnings and errors are always printed; --quiet suppresses
/// everything else. kSilent is for ranks that leave even warnings to the first.
enum class Verbosity { kSilent, kQuiet, kNormal, kVerbose };

/// How to report the progress of work on stderr: a bar or lines of text, or lines of JSON.
enum class ProgressFormat { kText, kJson };

/// The meaning of a colour. Colours only repeat what the text says.
enum class Tint { kNone, kHeading, kGood, kBad, kNotice };

class Console {
 public:
  Console();

  void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }
  Verbosity verbosity() const { return verbosity_; }

  void set_progress_format(ProgressFormat format) { progress_format_ = format; }
  ProgressFormat progress_format() const { return progress_format_; }

  /// The labels of the progress to come, in order, which numbers them in text.
  void set_stages(std::vector<std::string> labels) { stages_ = std::move(labels); }
  /// "2/5 " for the second of five stages; empty if there are none, or not this one.
  std::string stage_of(std::string_view label) const;

  /// Whether stderr is a terminal that can redraw a line.
  bool redraws() const { return redraws_; }
  /// Columns of the terminal on stderr; 80 if there is none.
  int columns() const;
  /// Columns for results: those of the terminal on stdout, at least 20; unlimited in a pipe or a
  /// file.
  std::size_t result_columns() const;
  /// Whether stdout is a terminal.
  bool shows_results() const;
  /// `text` in a colour, if stdout is a terminal with colours and NO_COLOR (https://no-color.org)
  /// is not set; otherwise `text` unchanged.
  std::string tinted(Tint tint, std::string_view text) const;

  /// Writes a result and a newline to stdout. Throws kEnvironment if that fails.
  void print(std::string_view text) const;
  /// The same without the newline, for a result that grows.
  void print_part(std::string_view text) const;
  /// Writes a result of several lines. On a terminal, long lines are broken between words and the
  /// continuation lines are indented by `indent` columns.
  void print_facts(std::string_view text, std::size_t indent) const;
  /// Writes a note to stderr, unless --quiet; long lines as by print_facts(). What begins with
  /// "warning: " is written then, too.
  void note(std::string_view text, std::size_t indent = 2) const;
  /// Writes a note for each of `texts` that is not empty, after "note: " or "warning: " as `kind`
  /// says.
  void notes(std::string_view kind, const std::vector<std::string>& texts) const;
  /// Writes a detail to stderr, with --verbose only.
  void detail(std::string_view text) const;
  /// Writes one line to stderr, always; on a terminal it is wrapped.
  void error(std::string_view text) const;

 private:
  Verbosity verbosity_ = Verbosity::kNormal;
  ProgressFormat progress_format_ = ProgressFormat::kText;
  std::vector<std::string> stages_;
  bool redraws_ = false;
  bool colours_ = false;
};

/// The reason of a failed allocation: "out of memory", with what was asked for if it is known.
std::string text_of_shortage(const std::exception& fault);

/// Runs `work`, without which the command's result is complete. A failure, also for want of memory,
/// is a note that begins with `what`; an interruption is thrown.
void run_or_note(const Console& console, std::string_view what, const std::function<void()>& work);

}  // namespace regroup
