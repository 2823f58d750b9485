// An axis of a chart: which numbers it shows, where, and how they are written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace regroup {

struct Axis {
  enum class Scale { kLinear, kLog2, kLog10 };

  std::string title;
  Scale scale = Scale::kLinear;
  std::optional<double> low = std::nullopt, high = std::nullopt;  ///< shown at least
  bool whole = false;                            ///< no ticks between whole numbers
  std::function<std::string(double)> text = {};  ///< of a tick; three digits unless given
};

/// An axis that is laid out: values from low to high, and the ticks among them.
class Ruler {
 public:
  /// Of an axis that shows all `values` (finite; positive on logarithmic axes). Where `snug`, it
  /// ends with the values, else at the ticks around them.
  Ruler(const Axis& axis, const std::vector<double>& values, bool snug);

  /// Where a value lies: 0 at the low end, 1 at the high one.
  double position(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  std::string text(double tick) const;
  /// Whether the axis can show the number at all.
  static bool shows(const Axis& axis, double value);

 private:
  double scaled(double value) const;
  double unscaled(double value) const;

  Axis axis_;
  double low_ = 0.0, high_ = 1.0;  // scaled
  std::vector<double> ticks_;
};

}  // namespace regroup
