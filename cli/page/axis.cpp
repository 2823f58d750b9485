#include "cli/page/axis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace regroup {
namespace {

constexpr double kMostTicks = 6.0;

// The smallest of 1, 2, 5, 10, 20, ... (of whole numbers where `whole`) that divides a range into
// few parts.
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

}  // namespace

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
  if (high_ - low_ <= 1e-12 * std::abs(high_)) {  // one value: some room around it
    const double room = logarithmic ? 1.0 : std::abs(high_) < 1e-300 ? 1.0 : std::abs(high_) / 2;
    low_ -= room;
    high_ += room;
  }
  // Between powers of the base there are none to name, so a short logarithmic axis grows to two.
  const double step = step_for(high_ - low_, axis.whole || logarithmic);
  if (!snug) {
    low_ = step * std::floor(low_ / step + 1e-9);
    high_ = step * std::ceil(high_ / step - 1e-9);
  }
  for (double number = std::ceil(low_ / step - 1e-9); number * step <= high_ + 1e-9 * step;
       ++number) {
    ticks_.push_back(unscaled(number * step + 0.0));  // + 0: no "-0"
  }
}

double Ruler::position(double value) const { return (scaled(value) - low_) / (high_ - low_); }

std::string Ruler::text(double tick) const {
  return axis_.text ? axis_.text(tick) : fmt::format("{:.3g}", tick);
}

}  // namespace regroup
