// An axis of a chart: its scale, ticks and labels.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regroup {

struct Axis {
  enum class Scale { kLinear, kLog2, kLog10 };
  enum class Numbers { kPlain, kPercent, kBytes, kTokens };  ///< kPercent: 1.0 is 100 %

  std::string title;
  Scale scale = Scale::kLinear;
  std::optional<double> low = std::nullopt, high = std::nullopt;  ///< values the axis must include
  bool whole = false;  ///< no ticks between whole numbers
  Numbers numbers = Numbers::kPlain;
};

/// Formats one value for the chart's text: "3.25", "26,400", "81.25 %", "4 MiB", "8k".
std::string text_of(const Axis& axis, double value);

/// The layout of an axis: its range and its ticks.
class Ruler {
 public:
  /// Lays out an axis that includes all `values` (finite; positive on logarithmic axes). If `snug`,
  /// it ends at the outermost values, otherwise at the ticks around them.
  Ruler(const Axis& axis, const std::vector<double>& values, bool snug);

  /// The relative position of a value: 0 at the low end, 1 at the high end.
  double position(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  /// The labels of the ticks, all with the same number of digits and the same exponent.
  const std::vector<std::string>& labels() const { return labels_; }
  /// Whether the axis can show the value.
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
