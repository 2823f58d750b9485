// A progress bar with rate and ETA on a terminal, plain lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/console.h"

namespace regroup {

class Progress {
 public:
  /// How amounts are shown: bytes as "1.2 GB", other units as "120 steps".
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
  void set_start(std::uint64_t done) { start_done_ = done; }

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(std::uint64_t done, std::string_view detail) const;
  std::string amount(double value) const;
  void clear();

  const Console& console_;
  std::string label_;
  std::uint64_t total_;
  std::string unit_;
  std::uint64_t start_done_ = 0;
  std::uint64_t done_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
  bool finished_ = false;
};

}  // namespace regroup
