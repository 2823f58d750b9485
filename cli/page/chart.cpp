#include "cli/page/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "cli/page/markup.h"
#include "cli/terminal/text.h"

namespace regroup {
namespace {

// Lengths in units of the drawing: about a pixel on a phone, more on a desktop.
constexpr double kWidth = 420.0, kPlotHeight = 200.0, kLine = 16.0, kEdge = 4.0;
constexpr double kLetter = 6.8;  // approximate width at a font size of 12
constexpr double kWidestEndLabel = 120.0;
constexpr double kWidestBar = 36.0;
constexpr std::size_t kColours = 8;

double width_on_paper(std::string_view text) {
  return kLetter * static_cast<double>(width_of(text));
}

std::string_view line_class(const Series& series) {
  return series.mark == Series::Mark::kFaintLine ? "line faint" : "line";
}

// Lays out a chart and writes its elements.
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
    for (const Threshold& threshold : chart_.thresholds) {
      if (Ruler::shows(chart_.y, threshold.y)) {
        put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"threshold\"/>\n", left_, y(threshold.y),
            right_);
      }
    }
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      draw_series(chart_.series[i], colour(i));
    }
    if (end_labels_) {
      draw_end_labels();
    }
    return std::move(out_);
  }

  double height() const { return bottom_ + 2 * kLine + kEdge; }

 private:
  // All values that an axis has to include. Bars begin at y = 0 and need room at both sides.
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

  // Entries of the key: series, then thresholds.
  std::size_t key_count() const { return chart_.series.size() + chart_.thresholds.size(); }
  const std::string& key_name(std::size_t i) const {
    const std::size_t series = chart_.series.size();
    return i < series ? chart_.series[i].name : chart_.thresholds[i - series].name;
  }

  void lay_out_margins() {
    double widest = 0.0, longest = 0.0;
    for (const std::string& label : y_.labels()) {
      widest = std::max(widest, width_on_paper(label));
    }
    for (std::size_t i = 0; i < key_count(); ++i) {
      longest = std::max(longest, width_on_paper(key_name(i)));
    }
    end_labels_ = chart_.key == Chart::Key::kEndLabels && longest <= kWidestEndLabel;
    const double last = x_.labels().empty() ? 0.0 : width_on_paper(x_.labels().back()) / 2;
    left_ = kEdge + widest + 6.0;
    right_ = kWidth - std::max(end_labels_ ? longest + 12.0 : 2 * kEdge, last + kEdge);
    top_ = (titled_ ? 1.5 * kLine : 0.0) + legend_height() + kLine + 14.0;
    bottom_ = top_ + kPlotHeight;
  }

  double legend_height() {
    if (end_labels_ || key_count() < 2) {
      return 0.0;
    }
    double at = kEdge, row = 0.0;
    for (std::size_t i = 0; i < key_count(); ++i) {
      const double width = 24.0 + width_on_paper(key_name(i)) + 12.0;
      if (at + width > kWidth && at > kEdge) {
        at = kEdge;
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

  std::string colour(std::size_t number) const {
    const std::size_t count = chart_.series.size();
    return chart_.ordered && count > 1
               ? fmt::format("r{}", (number * (kColours - 1) + (count - 1) / 2) / (count - 1))
               : fmt::format("c{}", chart_.series[number].colour.value_or(number) % kColours);
  }

  void draw_head() {
    const double first = titled_ ? 1.5 * kLine : 0.0;
    if (titled_) {
      put_text(kEdge, kLine, "start", "chart-title", chart_.title);
    }
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      const double at = legend_[i].x, row = first + legend_[i].y + kLine - 4.0;
      draw_sample(i, at, row - 4.0);
      put_text(at + 23.0, row, "start", "label", key_name(i));
    }
    put_text(kEdge, top_ - 14.0, "start", "axis", chart_.y.title);
  }

  // Draws the sample of a series or threshold in the legend.
  void draw_sample(std::size_t i, double at, double middle) {
    if (i >= chart_.series.size()) {
      put("<path d=\"M{:.1f} {:.1f}h18\" class=\"threshold\"/>\n", at, middle);
      return;
    }
    const Series& series = chart_.series[i];
    if (series.mark == Series::Mark::kBars) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"8\" class=\"bar {}\"/>\n", at,
          middle - 4.0, colour(i));
      return;
    }
    if (series.mark != Series::Mark::kDots) {
      put("<path d=\"M{:.1f} {:.1f}h18\" class=\"{} {}\"/>\n", at, middle, line_class(series),
          colour(i));
    }
    if (series.mark == Series::Mark::kDots || series.mark == Series::Mark::kLineAndDots) {
      put("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"dot {}\"/>\n", at + 9.0, middle,
          colour(i));
    }
  }

  void draw_axes() {
    for (std::size_t i = 0; i < y_.ticks().size(); ++i) {
      const double height = y(y_.ticks()[i]);
      put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>\n", left_, height, right_);
      put_text(left_ - 5.0, height + 4.0, "end", "tick", y_.labels()[i]);
    }
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"base\"/>\n", left_, bottom_, right_);
    double free = 0.0;  // labels that would touch the previous one are left out
    for (std::size_t i = 0; i < x_.ticks().size(); ++i) {
      const double at = x(x_.ticks()[i]), half = width_on_paper(x_.labels()[i]) / 2;
      if (at - half >= free) {
        put("<path d=\"M{:.1f} {:.1f}v4\" class=\"base\"/>\n", at, bottom_);
        put_text(at, bottom_ + kLine, "middle", "tick", x_.labels()[i]);
        free = at + half + 6.0;
      }
    }
    put_text((left_ + right_) / 2, bottom_ + 2 * kLine, "middle", "axis", chart_.x.title);
  }

  void draw_series(const Series& series, const std::string& colour) {
    if (series.mark == Series::Mark::kBars) {
      draw_bars(series, colour);
      return;
    }
    std::string path;
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                       x(point.x), y(point.y));
      }
    }
    if (!path.empty() && series.mark != Series::Mark::kDots) {
      put("<path d=\"{}\" class=\"{} {}\"/>\n", path, line_class(series), colour);
    }
    if (series.mark == Series::Mark::kLineAndDots || series.mark == Series::Mark::kDots) {
      draw_dots(series, colour);
    }
  }

  void draw_dots(const Series& series, const std::string& colour) {
    const double radius = series.mark == Series::Mark::kDots ? 4.0 : 2.8;
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        put("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"dot "
            "{}\"><title>{}</title></circle>\n",
            x(point.x), y(point.y), radius, colour, escaped(words_of(series, point)));
      }
    }
  }

  void draw_bars(const Series& series, const std::string& colour) {
    const double width = std::min(0.72 * (x(1.0) - x(0.0)), kWidestBar);
    for (const ChartPoint& point : series.points) {
      if (shown(point)) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"bar {}\">"
            "<title>{}</title></rect>\n",
            x(point.x) - width / 2, y(point.y), width, y(0.0) - y(point.y), colour,
            escaped(words_of(series, point)));
      }
    }
  }

  std::string words_of(const Series& series, const ChartPoint& point) const {
    return fmt::format("{}: {} at {} {}", series.name, text_of(chart_.y, point.y), chart_.x.title,
                       text_of(chart_.x, point.x));
  }

  // Draws names at the right ends of their lines and moves them apart if they would overlap.
  void draw_end_labels() {
    constexpr double kApart = 12.5;
    std::vector<std::pair<double, std::string>> labels;
    for (const Series& series : chart_.series) {
      if (!series.points.empty() && shown(series.points.back())) {
        labels.emplace_back(y(series.points.back().y) + 4.0, series.name);
      }
    }
    for (const Threshold& threshold : chart_.thresholds) {
      if (Ruler::shows(chart_.y, threshold.y)) {
        labels.emplace_back(y(threshold.y) + 4.0, threshold.name);
      }
    }
    std::stable_sort(labels.begin(), labels.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < labels.size(); ++i) {
      labels[i].first = std::max(labels[i].first, labels[i - 1].first + kApart);
    }
    double lowest = bottom_;  // labels that were moved below the axis are moved up again
    for (auto label = labels.rbegin(); label != labels.rend(); ++label, lowest -= kApart) {
      label->first = std::min(label->first, lowest);
    }
    for (const auto& [height, name] : labels) {
      put_text(right_ + 7.0, height, "start", "label", name);
    }
  }

  const Chart& chart_;
  bool titled_;
  Ruler x_, y_;
  bool end_labels_ = false;
  double left_ = 0.0, right_ = 0.0, top_ = 0.0, bottom_ = 0.0;
  std::vector<ChartPoint> legend_;  // position of each entry
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
