// Charts as SVG: lines, dots and bars over two axes, standalone or inside a page, for light and
// dark schemes and print. Titles and descriptions are accessible to screen readers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
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

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
};

struct Series {
  enum class Mark { kLine, kLineAndDots, kDots, kBars, kFaintLine };

  std::string name;
  std::vector<ChartPoint> points;  ///< ordered by x; points that an axis cannot show are skipped
  Mark mark = Mark::kLine;
  /// Series with the same number have the same colour, kReference is grey; without a number, each
  /// series has its own.
  std::optional<std::size_t> colour = std::nullopt;

  static constexpr std::size_t kReference = 7;
};

/// A horizontal line across the chart, such as the available memory.
struct Threshold {
  double y = 0.0;
  std::string name;
};

struct Chart {
  /// Where the names of series are: in a legend, or at the ends of their lines. Long names are
  /// always in a legend.
  enum class Key { kLegend, kEndLabels };

  std::string id;  ///< letters, digits and hyphens; unique within a document
  std::string title;
  std::string description;  ///< one sentence
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<Threshold> thresholds = {};
  Key key = Key::kLegend;
  bool ordered = false;  ///< series are steps of one quantity: their colours are a gradient
};

/// The CSS rules for svg_of(), needed once per document.
std::string_view chart_style();

/// An <svg> element for a page that includes chart_style() and shows the title itself. All text is
/// escaped.
std::string svg_of(const Chart& chart);

/// A complete SVG file, with title and style.
std::string svg_document(const Chart& chart);

}  // namespace regroup
