// An axis of a chart: which numbers it shows, where, and how they are written.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regroup {

struct Axis {
  enum class Scale { kLinear, kLog2, kLog10 };
  enum class Numbers { kPlain, kPercent, kBytes, kTokens };  ///< kPercent: of shares of 1

  std::string title;
  Scale scale = Scale::kLinear;
  std::optional<double> low = std::nullopt, high = std::nullopt;  ///< shown at least
  bool whole = false;  ///< no ticks between whole numbers
  Numbers numbers = Numbers::kPlain;
};

/// One value as a reader of the chart is told it: "3.25", "26,400", "81.25 %", "4 MiB", "8k".
std::string text_of(const Axis& axis, double value);

/// An axis that is laid out: values from low to high, and the ticks among them.
class Ruler {
 public:
  /// Of an axis that shows all `values` (finite; positive on logarithmic axes). Where `snug`, it
  /// ends with the values, else at the ticks around them.
  Ruler(const Axis& axis, const std::vector<double>& values, bool snug);

  /// Where a value lies: 0 at the low end, 1 at the high one.
  double position(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  /// How the ticks are written: all in one way, with as many digits and the same exponent.
  const std::vector<std::string>& labels() const { return labels_; }
  /// Whether the axis can show the number at all.
  static bool shows(const Axis& axis, double value);

 private:
  double scaled(double value) const;
  double unscaled(double value) const;

  Axis axis_;
  double low_ = 0.0, high_ = 1.0;  // scaled
  std::vector<double> ticks_;
  std::vector<std::string> labels_;
};

}  // namespace regroup
