#include "cli/shell/progress.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>

#include "cli/shell/text.h"
#include "formats/base/json.h"

namespace regroup {
namespace {

constexpr std::size_t kBarColumns = 20, kLeastBar = 5;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(15);
constexpr auto kBeat = std::chrono::seconds(1);
constexpr double kLongPercent = 600.0;  // seconds

// Ignores write errors: a closed stderr must not stop the work.
void draw(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string amount(double value, std::string unit) {
  if (value == 1 && unit.ends_with('s')) {
    unit.pop_back();
  }
  return unit == "bytes" ? text_of_bytes(value)
         : value >= 1e5  ? fmt::format("{} {}", text_of_count(value), unit)
         : value >= 1e3  ? fmt::format("{} {}", fmt::group_digits(std::llround(value)), unit)
                         : fmt::format("{:.{}f} {}", value,
                                      value < 10 && value != std::floor(value) ? 1 : 0, unit);
}

double percentage_of(const ProgressState& state) {
  return 100 * static_cast<double>(std::min(state.done, state.total)) /
         static_cast<double>(state.total);
}

double rate_of(const ProgressState& state) {
  return static_cast<double>(state.done - std::min(state.done_before, state.done)) /
         std::max(state.seconds - state.prepared, 1e-3);
}

// "2 steps/s", or "32 s each" for slow ones.
std::string pace_of(double rate, const std::string& unit) {
  return rate >= 0.5 || rate <= 0 || unit == "bytes" ? amount(rate, unit) + "/s"
                                                     : text_of_duration(1 / rate) + " each";
}

// "[####......] ", at most `room` columns; empty if there is too little room.
std::string bar_of(double share, std::size_t room) {
  constexpr std::size_t kFrame = 3;
  if (room < kLeastBar + kFrame) {
    return "";
  }
  const std::size_t columns = std::min(kBarColumns, room - kFrame);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(columns));
  return "[" + std::string(filled, '#') + std::string(columns - filled, '.') + "] ";
}

}  // namespace

std::string line_of(const ProgressState& state, std::string_view detail, std::size_t columns) {
  const double rate = rate_of(state);
  const std::string label = state.stage + state.label;
  const std::string end = detail.empty() ? "" : fmt::format("  {}", detail);
  if (state.total == 0) {
    const std::string so_far =
        rate > 0 ? fmt::format("{}  {}", amount(static_cast<double>(state.done), state.unit),
                               pace_of(rate, state.unit))
                 : text_of_duration(state.seconds);
    return code_points(fmt::format("{} {}{}", label, so_far, end), columns);
  }
  const auto total = static_cast<double>(state.total);
  const double done = std::min(static_cast<double>(state.done), total);
  const std::string left =
      done < total ? "ETA " + text_of_duration((total - done) / rate) : "finishing";
  const std::string pace = rate > 0 ? fmt::format("{}  {}", pace_of(rate, state.unit), left)
                                    : text_of_duration(state.seconds);
  const std::string rest = fmt::format("{:3.0f}%  {}{}", percentage_of(state), pace, end);
  const std::size_t used = width_of(label) + 1 + width_of(rest);
  const std::string bar = bar_of(done / total, columns > used ? columns - used : 0);
  return code_points(fmt::format("{} {}{}", label, bar, rest), columns);
}

bool belongs_in_log(const ProgressState& state, const ProgressState& logged) {
  const auto shown = [](const ProgressState& each) { return std::nearbyint(percentage_of(each)); };
  return state.total == 0 || shown(state) != shown(logged) ||
         (state.done != logged.done && state.seconds - logged.seconds >= kLongPercent);
}

std::string json_line_of(const ProgressState& state, std::string_view detail) {
  Json line{{"progress", state.label},
            {"unit", state.unit},
            {"done", state.done},
            {"total", state.total > 0 ? Json(state.total) : Json()},
            {"seconds", state.seconds}};
  if (!detail.empty()) {
    line["detail"] = detail;
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Progress::Progress(const Console& console, std::string label, std::uint64_t total, std::string unit)
    : console_(console), state_{std::move(label), std::move(unit), total} {
  state_.stage = console.stage_of(state_.label);
  if (is_json() || console_.verbosity() == Verbosity::kQuiet) {
    return;
  }
  if (console_.redraws()) {
    show_if_due();
  } else {
    next_ = begin_ + kPlainLine;
  }
  beat_ = std::jthread([this](const std::stop_token& stopped) { keep_alive(stopped); });
}

Progress::~Progress() {
  beat_ = {};  // waits for it
  clear();
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Progress::set_start(std::uint64_t done) {
  const std::lock_guard lock(guard_);
  state_.done_before = done;
}

void Progress::keep_alive(const std::stop_token& stopped) {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals interrupt what the main thread waits for
  std::unique_lock lock(guard_);
  while (!wake_.wait_for(lock, stopped, kBeat, [&] { return stopped.stop_requested(); })) {
    if (!finished_) {
      show_if_due();
    }
  }
}

void Progress::update(std::uint64_t done, std::string_view detail) {
  const std::lock_guard lock(guard_);
  state_.done = done;
  detail_ = detail;
  if (done <= state_.done_before) {
    state_.prepared = seconds();
  }
  if (console_.verbosity() != Verbosity::kQuiet) {
    show_if_due();
  }
}

void Progress::show_if_due() {
  const auto now = Clock::now();
  if (now < next_) {
    return;
  }
  state_.seconds = seconds();
  if (is_json()) {
    console_.note(json_line_of(state_, detail_));
    next_ = now + kRedraw;
  } else if (console_.redraws()) {
    const auto width = static_cast<std::size_t>(std::max(console_.columns() - 1, 20));
    draw(fmt::format("\r\x1b[2K{}", line_of(state_, detail_, width)));
    drawn_ = true;
    next_ = now + kRedraw;
  } else {
    log();
    next_ = now + kPlainLine;
  }
}

void Progress::log() {
  constexpr std::size_t kLogColumns = 120;
  if (!logged_ || belongs_in_log(state_, *logged_)) {
    console_.note(line_of(state_, detail_, kLogColumns));
    logged_ = state_;
  }
}

void Progress::clear() {
  if (drawn_) {
    draw("\r\x1b[2K");
    drawn_ = false;
  }
}

void Progress::interrupt_with(std::string_view text) {
  const std::lock_guard lock(guard_);
  clear();
  next_ = console_.redraws() ? Clock::now() : next_;
  console_.note(text);
}

void Progress::finish() {
  const std::lock_guard lock(guard_);
  clear();
  if (std::exchange(finished_, true)) {
    return;
  }
  if (is_json()) {
    state_.seconds = seconds();
    console_.note(json_line_of(state_, ""));
  } else {
    const auto moved = static_cast<double>(state_.done - state_.done_before);
    const double taken = seconds();
    constexpr double kMeasurable = 0.1;  // seconds; a shorter time says nothing of the speed
    console_.note(
        fmt::format("{}{}: {} in {}", state_.stage, state_.label, amount(moved, state_.unit),
                    taken < kMeasurable ? "less than 0.1 s"
                                        : fmt::format("{} ({})", text_of_duration(taken),
                                                      pace_of(moved / taken, state_.unit))));
  }
}

}  // namespace regroup
