#include "cli/page/chart.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/page/markup.h"

namespace regroup {
namespace {

// In units of the drawing, which is as wide as a phone is in pixels.
constexpr double kWidth = 360.0, kPlotHeight = 170.0, kLine = 15.0, kEdge = 4.0;
constexpr double kLetter = 6.2;  // about, at 11 units
constexpr std::size_t kColours = 8;

double width_of(std::string_view text) {
  const auto letters =
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
  return kLetter * static_cast<double>(letters);
}

// What is drawn where.
class Drawing {
 public:
  Drawing(const Chart& chart, bool titled)
      : chart_(chart),
        titled_(titled),
        x_(chart.x, values(chart.x, &ChartPoint::x), true),
        y_(chart.y, values(chart.y, &ChartPoint::y), false) {
    lay_out_margins();
  }

  std::string body() {
    draw_head();
    draw_axes();
    draw_thresholds();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      draw_series(chart_.series[i], i);
    }
    if (chart_.key == Chart::Key::kEndLabels) {
      draw_end_labels();
    }
    return std::move(out_);
  }

  double height() const { return bottom_ + 2 * kLine + kEdge; }

 private:
  // All that an axis has to show; bars stand on zero and need room at their sides.
  std::vector<double> values(const Axis& axis, double ChartPoint::* coordinate) const {
    std::vector<double> found;
    const bool along = coordinate == &ChartPoint::x;
    for (const Series& series : chart_.series) {
      const bool bars = series.mark == Series::Mark::kBars;
      for (const ChartPoint& point : series.points) {
        if (shown(point)) {
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
    for (const Threshold& threshold : chart_.thresholds) {
      if (!along && Ruler::shows(axis, threshold.y)) {
        found.push_back(threshold.y);
      }
    }
    return found;
  }

  bool shown(const ChartPoint& point) const {
    return Ruler::shows(chart_.x, point.x) && Ruler::shows(chart_.y, point.y);
  }

  void lay_out_margins() {
    double widest = 0.0;
    for (const double tick : y_.ticks()) {
      widest = std::max(widest, width_of(y_.text(tick)));
    }
    left_ = kEdge + widest + 6.0;
    double labels = 2 * kEdge;
    if (chart_.key == Chart::Key::kEndLabels) {
      for (const Series& series : chart_.series) {
        labels = std::max(labels, width_of(series.name) + 12.0);
      }
    }
    right_ = kWidth - labels;
    top_ = (titled_ ? 1.5 * kLine : 0.0) + legend_height() + kLine + 8.0;
    bottom_ = top_ + kPlotHeight;
  }

  double legend_height() {
    if (chart_.key != Chart::Key::kLegend || chart_.series.size() < 2) {
      return 0.0;
    }
    double at = left_, row = 0.0;
    for (const Series& series : chart_.series) {
      const double width = 24.0 + width_of(series.name) + 12.0;
      if (at + width > kWidth && at > left_) {
        at = left_;
        row += kLine;
      }
      legend_.push_back({at, row});
      at += width;
    }
    return row + kLine;
  }

  double x(double value) const { return left_ + (right_ - left_) * x_.position(value); }
  double y(double value) const { return bottom_ - kPlotHeight * y_.position(value); }

  template <typename... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }

  void put_text(double at_x, double at_y, std::string_view anchor, std::string_view style,
                const std::string& text) {
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", at_x, at_y,
        anchor, style, escaped(text));
  }

  static std::string colour(std::size_t number) { return fmt::format("c{}", number % kColours); }

  void draw_head() {
    const double first = titled_ ? 1.5 * kLine : 0.0;
    if (titled_) {
      put_text(kEdge, kLine, "start", "chart-title", chart_.title);
    }
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      const double at = legend_[i].x, row = first + legend_[i].y + kLine - 4.0;
      const Series& series = chart_.series[i];
      if (series.mark == Series::Mark::kBars) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"8\" class=\"bar {}\"/>\n", at,
            row - 8.0, colour(i));
      } else {
        put("<path d=\"M{:.1f} {:.1f}h18\" class=\"{} {}\"/>\n", at, row - 4.0, line_class(series),
            colour(i));
      }
      put_text(at + 23.0, row, "start", "label", series.name);
    }
    put_text(kEdge, top_ - 9.0, "start", "axis", chart_.y.title);
  }

  void draw_axes() {
    for (const double tick : y_.ticks()) {
      put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>\n", left_, y(tick), right_);
      put_text(left_ - 5.0, y(tick) + 3.5, "end", "tick", y_.text(tick));
    }
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"base\"/>\n", left_, bottom_, right_);
    double free = 0.0;  // labels that would touch the one before are left out
    for (const double tick : x_.ticks()) {
      const std::string text = x_.text(tick);
      if (x(tick) - width_of(text) / 2 >= free) {
        put("<path d=\"M{:.1f} {:.1f}v4\" class=\"base\"/>\n", x(tick), bottom_);
        put_text(x(tick), bottom_ + kLine, "middle", "tick", text);
        free = x(tick) + width_of(text) / 2 + 6.0;
      }
    }
    put_text((left_ + right_) / 2, bottom_ + 2 * kLine, "middle", "axis", chart_.x.title);
  }

  void draw_thresholds() {
    for (const Threshold& threshold : chart_.thresholds) {
      if (Ruler::shows(chart_.y, threshold.y)) {
        put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"threshold\"/>\n", left_, y(threshold.y),
            right_);
        put_text(left_ + 4.0, y(threshold.y) - 4.0, "start", "label", threshold.name);
      }
    }
  }

  static std::string_view line_class(const Series& series) {
    return series.mark == Series::Mark::kFaintLine ? "line faint" : "line";
  }

  void draw_series(const Series& series, std::size_t number) {
    if (series.mark == Series::Mark::kBars) {
      draw_bars(series, number);
      return;
    }
    std::string path;
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                       x(point.x), y(point.y));
      }
    }
    if (!path.empty()) {
      put("<path d=\"{}\" class=\"{} {}\"/>\n", path, line_class(series), colour(number));
    }
    if (series.mark == Series::Mark::kLineAndDots) {
      draw_dots(series, number);
    }
  }

  void draw_dots(const Series& series, std::size_t number) {
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        put("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" class=\"dot "
            "{}\"><title>{}</title></circle>\n",
            x(point.x), y(point.y), colour(number), escaped(words_of(series, point)));
      }
    }
  }

  void draw_bars(const Series& series, std::size_t number) {
    const double width = 0.72 * (x(1.0) - x(0.0));
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"bar {}\">"
            "<title>{}</title></rect>\n",
            x(point.x) - width / 2, y(point.y), width, y(0.0) - y(point.y), colour(number),
            escaped(words_of(series, point)));
      }
    }
  }

  std::string words_of(const Series& series, const ChartPoint& point) const {
    return fmt::format("{}: {} at {} {}", series.name, y_.text(point.y), chart_.x.title,
                       x_.text(point.x));
  }

  // Names at the right ends of their lines, pushed apart where they would overlap.
  void draw_end_labels() {
    constexpr double kApart = 11.5;
    struct Label {
      double y;
      std::size_t number;
    };
    std::vector<Label> labels;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      const auto& points = chart_.series[i].points;
      if (!points.empty() && shown(points.back())) {
        labels.push_back({y(points.back().y) + 3.5, i});
      }
    }
    std::stable_sort(labels.begin(), labels.end(),
                     [](const Label& a, const Label& b) { return a.y < b.y; });
    for (std::size_t i = 1; i < labels.size(); ++i) {
      labels[i].y = std::max(labels[i].y, labels[i - 1].y + kApart);
    }
    double lowest = bottom_;  // those that were pushed below the axis come up again
    for (auto label = labels.rbegin(); label != labels.rend(); ++label, lowest -= kApart) {
      label->y = std::min(label->y, lowest);
    }
    for (const Label& label : labels) {
      put_text(right_ + 6.0, label.y, "start", "label", chart_.series[label.number].name);
    }
  }

  const Chart& chart_;
  bool titled_;
  Ruler x_, y_;
  double left_ = 0.0, right_ = 0.0, top_ = 0.0, bottom_ = 0.0;
  std::vector<ChartPoint> legend_;  // where each name stands
  std::string out_;
};

std::string element(const Chart& chart, bool whole_document) {
  Drawing drawing(chart, whole_document);
  const std::string body = drawing.body();
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" "
      "role=\"img\" aria-labelledby=\"{}-title {}-description\">\n<title "
      "id=\"{}-title\">{}</title>\n"
      "<desc id=\"{}-description\">{}</desc>\n{}{}</svg>\n",
      kWidth, drawing.height(), chart.id, chart.id, chart.id, escaped(chart.title), chart.id,
      escaped(chart.description),
      whole_document ? fmt::format("<style>{}</style>\n<rect width=\"100%\" height=\"100%\" "
                                   "class=\"ground\"/>\n",
                                   chart_style())
                     : "",
      body);
}

}  // namespace

std::string svg_of(const Chart& chart) { return element(chart, false); }

std::string svg_document(const Chart& chart) { return element(chart, true); }

}  // namespace regroup
