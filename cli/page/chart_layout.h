// Where the parts of a chart are drawn.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/page/axis.h"
#include "cli/page/chart.h"

namespace regroup {

/// Lengths in units of the drawing: about a pixel on a phone, more on a desktop.
inline constexpr double kChartWidth = 420.0;
inline constexpr double kChartLine = 16.0;  ///< height of a line of text
inline constexpr double kChartEdge = 4.0;   ///< margin of the whole chart

/// The approximate width of a text at a font size of 12.
double width_on_paper(std::string_view text);

/// Whether both axes can show the point.
bool shows(const Chart& chart, const ChartPoint& point);

/// Entries of the key: the chart's series, then its thresholds.
std::size_t key_count(const Chart& chart);
const std::string& key_name(const Chart& chart, std::size_t i);

/// The margins of the plot, its axes and its legend. `chart` has to outlive it.
class ChartLayout {
 public:
  /// If `titled`, the first line is kept free for the chart's title.
  ChartLayout(const Chart& chart, bool titled);

  const Ruler& x_axis() const { return x_; }
  const Ruler& y_axis() const { return y_; }
  /// The position of a value in the drawing.
  double x(double value) const;
  double y(double value) const;

  /// The edges of the plot.
  double left() const { return left_; }
  double right() const { return right_; }
  double top() const { return top_; }
  double bottom() const { return bottom_; }
  double height() const;  ///< of the whole chart

  /// Whether names are drawn at the ends of lines.
  bool end_labels() const { return end_labels_; }
  /// The position of each entry of the legend below the title; empty if there is no legend.
  const std::vector<ChartPoint>& legend() const { return legend_; }

 private:
  double lay_out_legend();

  const Chart& chart_;
  Ruler x_, y_;
  bool end_labels_ = false;
  double left_ = 0.0, right_ = 0.0, top_ = 0.0, bottom_ = 0.0;
  std::vector<ChartPoint> legend_;
};

}  // namespace regroup
