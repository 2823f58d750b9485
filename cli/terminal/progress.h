// A progress bar with rate and ETA on a terminal, plain lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/terminal/console.h"

namespace regroup {

/// How far something has come.
struct ProgressState {
  std::string label;
  std::string unit;         ///< bytes are shown as "1.2 GiB", other units as "120 steps"
  std::uint64_t total = 0;  ///< 0: not known
  std::uint64_t done = 0;
  std::uint64_t done_before = 0;  ///< work of an earlier run, which says nothing about the rate
  double seconds = 0.0;           ///< since this run began
};

/// A line no wider than `columns`: what is left for the bar after all else. While nothing is done
/// the time that is left is not known, and not said.
std::string line_of(const ProgressState& state, std::string_view detail, std::size_t columns);

class Progress {
 public:
  /// See ProgressState.
  Progress(const Console& console, std::string label, std::uint64_t total, std::string unit);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears an unfinished bar, so that an error stands on a line of its own.
  ~Progress();

  /// `done` of `total`; `detail` (a loss, a tensor's name) stands at the end of the line.
  void update(std::uint64_t done, std::string_view detail = "");

  /// A line of its own, above the bar.
  void interrupt_with(std::string_view text);

  /// Takes the bar away and, unless it was quiet, leaves one line saying how much and how long.
  void finish();

  /// Work done before this run, such as the steps of a resumed one: not counted in the rate.
  void set_start(std::uint64_t done) { state_.done_before = done; }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;
  void clear();

  const Console& console_;
  ProgressState state_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
  bool finished_ = false;
};

}  // namespace regroup
