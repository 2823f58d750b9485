// A progress bar with rate and ETA on a terminal, redrawn at least every second; without a
// terminal, lines at least 15 seconds apart, each percentage once. With --json-progress, lines of
// JSON.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "cli/shell/console.h"

namespace regroup {

/// The state of some work.
struct ProgressState {
  std::string label;
  std::string unit;         ///< bytes are shown as "1.2 GiB", other units as "120 steps"
  std::uint64_t total = 0;  ///< 0: unknown
  std::uint64_t done = 0;
  std::uint64_t done_before = 0;  ///< work of an earlier run, which does not count in the rate
  double seconds = 0.0;           ///< since this run began
  double prepared = 0.0;          ///< of these, before any work counted: trials, loading
  std::string stage = {};         ///< "2/5 ", before the label in text
};

/// A line of at most `columns` code points. The bar gets the columns that the rest leaves. While
/// nothing is done, the line has the time since the beginning instead of rate and ETA.
std::string line_of(const ProgressState& state, std::string_view detail, std::size_t columns);

/// The same as a line of JSON: "progress" (the label), "unit", "done", "total" (null if unknown),
/// "seconds", and "detail" unless it is empty.
std::string json_line_of(const ProgressState& state, std::string_view detail);

/// Whether a log whose last line is of `logged` gets a line of `state`: a percentage is logged
/// once, and again only while work goes on within it for ten minutes.
bool belongs_in_log(const ProgressState& state, const ProgressState& logged);

class Progress {
 public:
  /// The parameters are described in ProgressState.
  Progress(const Console& console, std::string label, std::uint64_t total, std::string unit);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears an unfinished bar, so that an error message gets a line of its own.
  ~Progress();

  /// Sets the work done so far. `detail` (a loss, a tensor's name) is shown at the end of the line.
  void update(std::uint64_t done, std::string_view detail = "");

  /// A callback that updates the work done to its first argument.
  auto callback() {
    return [this](std::uint64_t done, const auto&...) { update(done); };
  }

  /// Prints a line above the bar.
  void interrupt_with(std::string_view text);

  /// Clears the bar and prints one line with the amount of work and the time, unless --quiet. As
  /// JSON this is a line like those before it.
  void finish();

  /// Sets the work done before this run, such as the steps of a resumed run. It does not count in
  /// the rate.
  void set_start(std::uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;
  void show_if_due();
  void log();
  void keep_alive(const std::stop_token& stopped);
  bool is_json() const { return console_.progress_format() == ProgressFormat::kJson; }
  void clear();

  const Console& console_;
  std::mutex guard_;  // of what follows: long steps are shown by another thread
  ProgressState state_;
  std::string detail_;
  std::optional<ProgressState> logged_;  // the last line in a log
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
  bool finished_ = false;
  std::condition_variable_any wake_;
  std::jthread beat_;
};

}  // namespace regroup
