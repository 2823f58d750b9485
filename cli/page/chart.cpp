#include "cli/page/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "cli/page/chart_layout.h"
#include "cli/page/markup.h"

namespace regroup {
namespace {

constexpr double kWidestBar = 36.0;
constexpr std::size_t kColours = 8;

std::string_view line_class(const Series& series) {
  return series.mark == Series::Mark::kFaintLine ? "line faint" : "line";
}

// Writes the elements of a chart.
class Drawing {
 public:
  Drawing(const Chart& chart, bool titled)
      : chart_(chart), titled_(titled), layout_(chart, titled) {}

  std::string body() {
    draw_head();
    draw_axes();
    for (const Threshold& threshold : chart_.thresholds) {
      if (Ruler::shows(chart_.y, threshold.y)) {
        put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"threshold\"/>\n", layout_.left(),
            layout_.y(threshold.y), layout_.right());
      }
    }
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      draw_series(chart_.series[i], colour(i));
    }
    if (layout_.end_labels()) {
      draw_end_labels();
    }
    return std::move(out_);
  }

  double height() const { return layout_.height(); }

 private:
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
    const double first = titled_ ? 1.5 * kChartLine : 0.0;
    if (titled_) {
      put_text(kChartEdge, kChartLine, "start", "chart-title", chart_.title);
    }
    for (std::size_t i = 0; i < layout_.legend().size(); ++i) {
      const double at = layout_.legend()[i].x;
      const double row = first + layout_.legend()[i].y + kChartLine - 4.0;
      draw_sample(i, at, row - 4.0);
      put_text(at + 23.0, row, "start", "label", key_name(chart_, i));
    }
    put_text(kChartEdge, layout_.top() - 14.0, "start", "axis", chart_.y.title);
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
    const Ruler &x_axis = layout_.x_axis(), &y_axis = layout_.y_axis();
    for (std::size_t i = 0; i < y_axis.ticks().size(); ++i) {
      const double height = layout_.y(y_axis.ticks()[i]);
      put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>\n", layout_.left(), height,
          layout_.right());
      put_text(layout_.left() - 5.0, height + 4.0, "end", "tick", y_axis.labels()[i]);
    }
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"base\"/>\n", layout_.left(), layout_.bottom(),
        layout_.right());
    double free = 0.0;  // labels that would touch the previous one are left out
    for (std::size_t i = 0; i < x_axis.ticks().size(); ++i) {
      const double at = layout_.x(x_axis.ticks()[i]);
      const double half = width_on_paper(x_axis.labels()[i]) / 2;
      if (at - half >= free) {
        put("<path d=\"M{:.1f} {:.1f}v4\" class=\"base\"/>\n", at, layout_.bottom());
        put_text(at, layout_.bottom() + kChartLine, "middle", "tick", x_axis.labels()[i]);
        free = at + half + 6.0;
      }
    }
    put_text((layout_.left() + layout_.right()) / 2, layout_.bottom() + 2 * kChartLine, "middle",
             "axis", chart_.x.title);
  }

  void draw_series(const Series& series, const std::string& colour) {
    if (series.mark == Series::Mark::kBars) {
      draw_bars(series, colour);
      return;
    }
    std::string path;
    for (const ChartPoint& point : series.points) {
      if (shows(chart_, point)) {
        fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                       layout_.x(point.x), layout_.y(point.y));
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
      if (shows(chart_, point)) {
        put("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"dot "
            "{}\"><title>{}</title></circle>\n",
            layout_.x(point.x), layout_.y(point.y), radius, colour,
            escaped(words_of(series, point)));
      }
    }
  }

  void draw_bars(const Series& series, const std::string& colour) {
    const double width = std::min(0.72 * (layout_.x(1.0) - layout_.x(0.0)), kWidestBar);
    for (const ChartPoint& point : series.points) {
      if (shows(chart_, point)) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"bar {}\">"
            "<title>{}</title></rect>\n",
            layout_.x(point.x) - width / 2, layout_.y(point.y), width,
            layout_.y(0.0) - layout_.y(point.y), colour, escaped(words_of(series, point)));
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
      if (!series.points.empty() && shows(chart_, series.points.back())) {
        labels.emplace_back(layout_.y(series.points.back().y) + 4.0, series.name);
      }
    }
    for (const Threshold& threshold : chart_.thresholds) {
      if (Ruler::shows(chart_.y, threshold.y)) {
        labels.emplace_back(layout_.y(threshold.y) + 4.0, threshold.name);
      }
    }
    std::stable_sort(labels.begin(), labels.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < labels.size(); ++i) {
      labels[i].first = std::max(labels[i].first, labels[i - 1].first + kApart);
    }
    double lowest = layout_.bottom();  // labels that were moved below the axis are moved up again
    for (auto label = labels.rbegin(); label != labels.rend(); ++label, lowest -= kApart) {
      label->first = std::min(label->first, lowest);
    }
    for (const auto& [height, name] : labels) {
      put_text(layout_.right() + 7.0, height, "start", "label", name);
    }
  }

  const Chart& chart_;
  bool titled_;
  ChartLayout layout_;
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
      kChartWidth, drawing.height(), chart.id, chart.id, chart.id, escaped(chart.title), chart.id,
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
