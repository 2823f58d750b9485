// Charts as SVG: lines, dots and bars over two axes, standalone or inside a page, for light and
// dark schemes and print. Titles and descriptions are accessible to screen readers.
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
  Axis x, y;
  std::vector<Series> series;
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
