// Charts as SVG: lines, dots and bars over two axes. Standalone or inside a page, in light, dark
// and print; said in words for those who do not see them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/page/axis.h"

namespace regroup {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
};

struct Series {
  enum class Mark { kLine, kLineAndDots, kDots, kBars, kFaintLine };

  std::string name;
  std::vector<ChartPoint> points;  ///< by x; those an axis cannot show are left out
  Mark mark = Mark::kLine;
  /// Series of one number have one colour, that of kReference is grey; none: each has its own.
  std::optional<std::size_t> colour = std::nullopt;

  static constexpr std::size_t kReference = 7;
};

/// A value of y worth a line across the chart, such as the memory there is.
struct Threshold {
  double y = 0.0;
  std::string name;
};

struct Chart {
  /// How series are told apart, besides by dashes. Long names stand in a legend either way.
  enum class Key { kLegend, kEndLabels };

  std::string id;  ///< letters, digits and hyphens, its own within a document
  std::string title;
  std::string description;  ///< what it shows, in a sentence
  Axis x, y;
  std::vector<Series> series;
  std::vector<Threshold> thresholds = {};
  Key key = Key::kLegend;
  bool ordered = false;  ///< series are steps of one quantity: colours go from one end to another
};

/// The rules that the drawings of svg_of() need, once per document.
std::string_view chart_style();

/// An <svg> element for a page that has chart_style() and says the title itself. All text is
/// escaped.
std::string svg_of(const Chart& chart);

/// A whole SVG file, with its title and style.
std::string svg_document(const Chart& chart);

}  // namespace regroup
