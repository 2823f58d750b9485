#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "cli/text.h"

namespace regroup {
namespace {

constexpr int kBarColumns = 20;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(15);

// Where nobody looks any more the work goes on.
void draw(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(const Console& console, std::string label, std::uint64_t total, std::string unit)
    : console_(console), label_(std::move(label)), total_(total), unit_(std::move(unit)) {
  if (!console_.redraws()) {
    next_ = begin_ + kPlainLine;
  }
}

Progress::~Progress() { clear(); }

std::string Progress::amount(double value) const {
  return unit_ == "bytes" ? text_of_bytes(value)
         : value >= 1e5   ? fmt::format("{} {}", text_of_count(value), unit_)
                          : fmt::format("{:.{}f} {}", value,
                                      value < 10 && value != std::floor(value) ? 1 : 0, unit_);
}

std::string Progress::line(std::uint64_t done, std::string_view detail) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const double rate = static_cast<double>(done - start_done_) / std::max(seconds, 1e-3);
  const double share =
      static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(total_, 1));
  const double left = rate > 0 ? static_cast<double>(total_ - std::min(done, total_)) / rate : 0;
  const auto filled = static_cast<std::size_t>(share * kBarColumns);
  const std::string bar = std::string(filled, '#') + std::string(kBarColumns - filled, '.');
  if (total_ == 0) {  // not known
    return fmt::format("{} {}  {}/s", label_, amount(static_cast<double>(done)), amount(rate));
  }
  std::string text = fmt::format("{} [{}] {:3.0f}%  {}/s  ETA {}", label_, bar, share * 100,
                                 amount(rate), text_of_duration(left));
  return detail.empty() ? text : fmt::format("{}  {}", text, detail);
}

void Progress::update(std::uint64_t done, std::string_view detail) {
  done_ = done;
  const auto now = Clock::now();
  if (now < next_ || console_.verbosity() == Verbosity::kQuiet) {
    return;
  }
  const std::string text = line(done, detail);
  if (console_.redraws()) {
    const auto width = static_cast<std::size_t>(std::max(console_.columns() - 1, 20));
    draw("\r\x1b[2K" + text.substr(0, width));
    drawn_ = true;
    next_ = now + kRedraw;
  } else {
    console_.note(text);
    next_ = now + kPlainLine;
  }
}

void Progress::clear() {
  if (drawn_) {
    draw("\r\x1b[2K");
    drawn_ = false;
  }
}

void Progress::interrupt_with(std::string_view text) {
  clear();
  next_ = console_.redraws() ? Clock::now() : next_;
  console_.note(text);
}

void Progress::finish() {
  clear();
  if (!std::exchange(finished_, true)) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto moved = static_cast<double>(done_ - start_done_);
    console_.note(fmt::format("{}: {} in {} ({}/s)", label_, amount(moved),
                              text_of_duration(seconds), amount(moved / std::max(seconds, 1e-3))));
  }
}

}  // namespace regroup
