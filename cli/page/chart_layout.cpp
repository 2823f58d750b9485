#include "cli/page/chart_layout.h"

#include <algorithm>

#include "cli/terminal/text.h"

namespace regroup {
namespace {

constexpr double kPlotHeight = 200.0;
constexpr double kLetter = 6.8;
constexpr double kWidestEndLabel = 120.0;

// All values that an axis has to include. Bars begin at y = 0 and need room at both sides.
std::vector<double> values(const Chart& chart, const Axis& axis, double ChartPoint::* coordinate) {
  std::vector<double> found;
  const bool along = coordinate == &ChartPoint::x;
  for (const Series& series : chart.series) {
    const bool bars = series.mark == Series::Mark::kBars;
    for (const ChartPoint& point : series.points) {
      if (shows(chart, point)) {
        found.push_back(point.*coordinate);
        if (bars && along) {
          found.insert(found.end(), {point.x - 0.5, point.x + 0.5});
        }
      }
    }
    if (bars && !along) {
      found.push_back(0.0);
    }
  }
  for (const Threshold& threshold : chart.thresholds) {
    if (!along && Ruler::shows(axis, threshold.y)) {
      found.push_back(threshold.y);
    }
  }
  return found;
}

}  // namespace

double width_on_paper(std::string_view text) {
  return kLetter * static_cast<double>(width_of(text));
}

bool shows(const Chart& chart, const ChartPoint& point) {
  return Ruler::shows(chart.x, point.x) && Ruler::shows(chart.y, point.y);
}

std::size_t key_count(const Chart& chart) { return chart.series.size() + chart.thresholds.size(); }

const std::string& key_name(const Chart& chart, std::size_t i) {
  const std::size_t series = chart.series.size();
  return i < series ? chart.series[i].name : chart.thresholds[i - series].name;
}

ChartLayout::ChartLayout(const Chart& chart, bool titled)
    : chart_(chart),
      x_(chart.x, values(chart, chart.x, &ChartPoint::x), true),
      y_(chart.y, values(chart, chart.y, &ChartPoint::y), false) {
  double widest = 0.0, longest = 0.0;
  for (const std::string& label : y_.labels()) {
    widest = std::max(widest, width_on_paper(label));
  }
  for (std::size_t i = 0; i < key_count(chart); ++i) {
    longest = std::max(longest, width_on_paper(key_name(chart, i)));
  }
  end_labels_ = chart.key == Chart::Key::kEndLabels && longest <= kWidestEndLabel;
  const double last = x_.labels().empty() ? 0.0 : width_on_paper(x_.labels().back()) / 2;
  left_ = kChartEdge + widest + 6.0;
  right_ = kChartWidth - std::max(end_labels_ ? longest + 12.0 : 2 * kChartEdge, last + kChartEdge);
  top_ = (titled ? 1.5 * kChartLine : 0.0) + lay_out_legend() + kChartLine + 14.0;
  bottom_ = top_ + kPlotHeight;
}

// Returns the height of the legend.
double ChartLayout::lay_out_legend() {
  if (end_labels_ || key_count(chart_) < 2) {
    return 0.0;
  }
  double at = kChartEdge, row = 0.0;
  for (std::size_t i = 0; i < key_count(chart_); ++i) {
    const double width = 24.0 + width_on_paper(key_name(chart_, i)) + 12.0;
    if (at + width > kChartWidth && at > kChartEdge) {
      at = kChartEdge;
      row += kChartLine;
    }
    legend_.push_back({at, row});
    at += width;
  }
  return row + kChartLine;
}

double ChartLayout::x(double value) const { return left_ + (right_ - left_) * x_.position(value); }

double ChartLayout::y(double value) const { return bottom_ - kPlotHeight * y_.position(value); }

double ChartLayout::height() const { return bottom_ + 2 * kChartLine + kChartEdge; }

}  // namespace regroup
