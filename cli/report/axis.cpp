#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/report/chart.h"
#include "cli/shell/text.h"

namespace regroup {
namespace {

constexpr double kMostTicks = 6.0;

// The smallest of ..., 0.5, 1, 2, 5, 10, ... (at least 1 if `whole`) that divides a range into at
// most kMostTicks parts.
double step_for(double range, bool whole) {
  const double least = std::max(range / kMostTicks, whole ? 1.0 : 0.0);
  const double magnitude = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * magnitude >= least * (1 - 1e-9)) {
      return factor * magnitude;
    }
  }
  return 10.0 * magnitude;
}

std::string tokens_text(double tokens) {
  return tokens >= 1024 ? fmt::format("{:.4g}k", tokens / 1024) : fmt::format("{:.0f}", tokens);
}

std::string whole_text(double value) {
  const std::string digits = with_thousands(static_cast<std::uint64_t>(std::abs(value) + 0.5));
  return value < -0.5 ? "-" + digits : digits;
}

// Formats a power of two: "1/8", "512".
std::string power_text(double tick) {
  return tick < 1.0 ? "1/" + whole_text(1.0 / tick) : whole_text(tick);
}

// Formats evenly spaced numbers with as many digits as they need to differ. Very small and very
// large ones share one exponent.
std::vector<std::string> plain_labels(const std::vector<double>& ticks) {
  double largest = 0.0;
  for (const double tick : ticks) {
    largest = std::max(largest, std::abs(tick));
  }
  const double exponent = largest > 0.0 ? std::floor(std::log10(largest) + 1e-9) : 0.0;
  const bool scientific = largest > 0.0 && (exponent < -3.0 || exponent > 8.0);
  const double unit = scientific ? std::pow(10.0, exponent) : 1.0;
  const double step = ticks.size() > 1 ? (ticks[1] - ticks[0]) / unit : largest / unit;
  const int digits =
      step > 0.0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12) : 0;
  std::vector<std::string> labels;
  for (const double tick : ticks) {
    labels.push_back(!scientific && digits == 0 ? whole_text(tick)
                     : !scientific              ? fmt::format("{:.{}f}", tick, digits)
                     : tick == 0.0              ? "0"
                                   : fmt::format("{:.{}f}e{:.0f}", tick / unit, digits, exponent));
  }
  return labels;
}

std::vector<std::string> labels_of(const Axis& axis, std::vector<double> ticks) {
  const bool percent = axis.numbers == Axis::Numbers::kPercent;
  std::vector<std::string> labels;
  if (axis.scale == Axis::Scale::kLinear && (percent || axis.numbers == Axis::Numbers::kPlain)) {
    for (double& tick : ticks) {
      tick *= percent ? 100.0 : 1.0;
    }
    labels = plain_labels(ticks);
    for (std::string& label : labels) {
      label += percent ? " %" : "";
    }
    return labels;
  }
  for (const double tick : ticks) {
    labels.push_back(axis.numbers != Axis::Numbers::kPlain ? text_of(axis, tick)
                     : axis.scale == Axis::Scale::kLog2    ? power_text(tick)
                                                           : fmt::format("{:.0e}", tick));
  }
  return labels;
}

}  // namespace

std::string text_of(const Axis& axis, double value) {
  switch (axis.numbers) {
    case Axis::Numbers::kPercent: return fmt::format("{:.4g} %", 100 * value);
    case Axis::Numbers::kBytes: return text_of_bytes(value);
    case Axis::Numbers::kTokens: return tokens_text(value);
    case Axis::Numbers::kPlain: break;
  }
  return std::abs(value) >= 1000 && std::abs(value) < 1e15 ? whole_text(value)
                                                           : fmt::format("{:.4g}", value);
}

bool Ruler::shows(const Axis& axis, double value) {
  return std::isfinite(value) && (axis.scale == Axis::Scale::kLinear || value > 0.0);
}

double Ruler::scaled(double value) const {
  return axis_.scale == Axis::Scale::kLog2    ? std::log2(value)
         : axis_.scale == Axis::Scale::kLog10 ? std::log10(value)
                                              : value;
}

double Ruler::unscaled(double value) const {
  return axis_.scale == Axis::Scale::kLog2    ? std::exp2(value)
         : axis_.scale == Axis::Scale::kLog10 ? std::pow(10.0, value)
                                              : value;
}

Ruler::Ruler(const Axis& axis, const std::vector<double>& values, bool snug) : axis_(axis) {
  std::vector<double> shown;
  for (const double value : values) {
    shown.push_back(scaled(value));
  }
  for (const auto& bound : {axis.low, axis.high}) {
    if (bound) {
      shown.push_back(scaled(*bound));
    }
  }
  if (!shown.empty()) {
    const auto [least, most] = std::minmax_element(shown.begin(), shown.end());
    low_ = *least;
    high_ = *most;
  }
  const bool logarithmic = axis.scale != Axis::Scale::kLinear;
  if (high_ - low_ <= 1e-12 * std::abs(high_)) {  // one value: adds room around it
    const double room = logarithmic ? 1.0 : std::abs(high_) < 1e-300 ? 1.0 : std::abs(high_) / 2;
    low_ -= room;
    high_ += room;
  }
  // Ticks of logarithmic axes are powers of the base, so a short axis grows to include two.
  const double step = step_for(high_ - low_, axis.whole || logarithmic);
  if (!snug) {
    low_ = step * std::floor(low_ / step + 1e-9);
    high_ = step * std::ceil(high_ / step - 1e-9);
  }
  for (double number = std::ceil(low_ / step - 1e-9); number * step <= high_ + 1e-9 * step;
       ++number) {
    ticks_.push_back(unscaled(number * step + 0.0));  // + 0: no "-0"
  }
  labels_ = labels_of(axis, ticks_);
}

double Ruler::position(double value) const { return (scaled(value) - low_) / (high_ - low_); }

}  // namespace regroup
