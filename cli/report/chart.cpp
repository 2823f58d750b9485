#include "cli/report/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "cli/report/page.h"
#include "cli/shell/text.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

constexpr double kMostTicks = 6.0;

// The smallest of ..., 0.5, 1, 2, 5, 10, ... (at least 1 if `whole`) that divides a range into at
// most kMostTicks parts.
double step_for(double range, bool whole) {
  const double least = std::max(range / kMostTicks, whole ? 1.0 : 0.0);
  const double magnitude = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * magnitude >= least * (1 - 1e-9)) {
      return factor * magnitude;
    }
  }
  return 10.0 * magnitude;
}

std::string tokens_text(double tokens) {
  return tokens >= 1024 ? fmt::format("{:.4g}k", tokens / 1024) : fmt::format("{:.0f}", tokens);
}

std::string whole_text(double value) {
  const std::string digits = with_thousands(static_cast<std::uint64_t>(std::abs(value) + 0.5));
  return value < -0.5 ? "-" + digits : digits;
}

// Formats evenly spaced numbers with as many digits as they need to differ. Very small and very
// large ones share one exponent.
std::vector<std::string> plain_labels(const std::vector<double>& ticks) {
  double largest = 0.0;
  for (const double tick : ticks) {
    largest = std::max(largest, std::abs(tick));
  }
  const double exponent = largest > 0.0 ? std::floor(std::log10(largest) + 1e-9) : 0.0;
  const bool scientific = largest > 0.0 && (exponent < -3.0 || exponent > 8.0);
  const double unit = scientific ? std::pow(10.0, exponent) : 1.0;
  const double step = ticks.size() > 1 ? (ticks[1] - ticks[0]) / unit : largest / unit;
  const int digits =
      step > 0.0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12) : 0;
  return mapped(ticks, [&](double tick) -> std::string {
    return !scientific && digits == 0 ? whole_text(tick)
           : !scientific              ? fmt::format("{:.{}f}", tick, digits)
           : tick == 0.0              ? "0"
                         : fmt::format("{:.{}f}e{:.0f}", tick / unit, digits, exponent);
  });
}

std::vector<std::string> labels_of(const Axis& axis, const std::vector<double>& ticks) {
  const bool linear = axis.scale == Axis::Scale::kLinear;
  if (linear && axis.numbers == Axis::Numbers::kPlain) {
    return plain_labels(ticks);
  }
  if (linear && axis.numbers == Axis::Numbers::kPercent) {
    const auto labels = plain_labels(mapped(ticks, [](double tick) { return 100.0 * tick; }));
    return mapped(labels, [](const std::string& label) { return label + " %"; });
  }
  return mapped(ticks, [&](double tick) {
    return axis.numbers != Axis::Numbers::kPlain ? text_of(axis, tick)
           : axis.scale == Axis::Scale::kLog10   ? fmt::format("{:.0e}", tick)
           : tick < 1.0                          ? "1/" + whole_text(1.0 / tick)
                                                 : whole_text(tick);
  });
}

constexpr double kWidestBar = 36.0;
constexpr std::size_t kColours = 8;

std::string_view line_class(const Series& series) {
  return series.mark == Series::Mark::kFaintLine ? "line faint" : "line";
}

std::string caption_of(const Axis& axis) {
  return axis.title + (axis.scale == Axis::Scale::kLinear ? "" : ", log scale");
}

// Lengths in units of the drawing: about a pixel, on a phone and in columns on a desktop.
constexpr double kChartWidth = 360.0;
constexpr double kChartLine = 16.0;  // height of a line of text
constexpr double kChartEdge = 4.0;   // margin of the whole chart
constexpr double kPlotHeight = 180.0;
constexpr double kWidestEndLabel = 100.0;

// The approximate width of a text at a font size of 12.
double width_on_paper(std::string_view text) {
  constexpr double kLetter = 6.8;
  return kLetter * static_cast<double>(width_of(text));
}

// The chart without what its axes cannot show.
Chart shown_part(Chart chart) {
  for (Series& series : chart.series) {
    std::erase_if(series.points, [&](const ChartPoint& point) {
      return !Ruler::shows(chart.x, point.x) || !Ruler::shows(chart.y, point.y);
    });
  }
  std::erase_if(chart.thresholds,
                [&](const Threshold& threshold) { return !Ruler::shows(chart.y, threshold.y); });
  return chart;
}

// The names of the chart's series, then of its thresholds.
std::vector<std::string> keys_of(const Chart& chart) {
  std::vector<std::string> keys = mapped(chart.series, &Series::name);
  append(keys, mapped(chart.thresholds, &Threshold::name));
  return keys;
}

double widest_of(const std::vector<std::string>& texts) {
  double widest = 0.0;
  for (const std::string& text : texts) {
    widest = std::max(widest, width_on_paper(text));
  }
  return widest;
}

// What the axes have to include. Bars begin at y = 0 and need room at both sides.
std::vector<double> x_values(const Chart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    const double room = series.mark == Series::Mark::kBars ? 0.5 : 0.0;
    for (const ChartPoint& point : series.points) {
      values.insert(values.end(), {point.x - room, point.x + room});
    }
  }
  return values;
}

std::vector<double> y_values(const Chart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    append(values, mapped(series.points, &ChartPoint::y));
    if (series.mark == Series::Mark::kBars) {
      values.push_back(0.0);
    }
  }
  append(values, mapped(chart.thresholds, &Threshold::y));
  return values;
}

// Where the parts of a chart are drawn: the edges of the plot, its axes and its legend. If
// `titled`, the first line is kept free for the chart's title.
struct ChartLayout {
  ChartLayout(const Chart& chart, bool titled)
      : x_axis(chart.x, x_values(chart), /*snug=*/true),
        y_axis(chart.y, y_values(chart), /*snug=*/false),
        keys(keys_of(chart)) {
    const double longest = widest_of(keys);
    end_labels = chart.key == Chart::Key::kEndLabels && longest <= kWidestEndLabel;
    const double last = x_axis.labels().empty() ? 0.0 : width_on_paper(x_axis.labels().back()) / 2;
    left = kChartEdge + widest_of(y_axis.labels()) + 6.0;
    right = kChartWidth - std::max(end_labels ? longest + 12.0 : 2 * kChartEdge, last + kChartEdge);
    top = (titled ? 1.5 * kChartLine : 0.0) + lay_out_legend() + kChartLine + 14.0;
    bottom = top + kPlotHeight;
  }

  // The position of a value in the drawing.
  double x(double value) const { return left + (right - left) * x_axis.position(value); }
  double y(double value) const { return bottom - kPlotHeight * y_axis.position(value); }

  // Of the whole chart.
  double height() const { return bottom + 2 * kChartLine + kChartEdge; }

  Ruler x_axis, y_axis;
  std::vector<std::string> keys;
  bool end_labels = false;  // whether names are drawn at the ends of lines
  double left = 0.0, right = 0.0, top = 0.0, bottom = 0.0;
  std::vector<ChartPoint> legend;  // the position of each entry below the title; may be empty

 private:
  // Returns the height of the legend.
  double lay_out_legend() {
    if (end_labels || keys.size() < 2) {
      return 0.0;
    }
    double at = kChartEdge, row = 0.0;
    for (const std::string& key : keys) {
      const double width = 24.0 + width_on_paper(key) + 12.0;
      if (at + width > kChartWidth && at > kChartEdge) {
        at = kChartEdge;
        row += kChartLine;
      }
      legend.push_back({at, row});
      at += width;
    }
    return row + kChartLine;
  }
};

// Writes the elements of a chart.
class Drawing {
 public:
  Drawing(const Chart& chart, bool titled)
      : chart_(shown_part(chart)), titled_(titled), layout_(chart_, titled) {}

  std::string body() {
    draw_head();
    draw_axes();
    for (const Threshold& threshold : chart_.thresholds) {
      put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"threshold\"/>\n", layout_.left,
          layout_.y(threshold.y), layout_.right);
    }
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      draw_series(chart_.series[i], colour(i));
    }
    if (layout_.end_labels) {
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
    for (std::size_t i = 0; i < layout_.legend.size(); ++i) {
      const double at = layout_.legend[i].x;
      const double row = first + layout_.legend[i].y + kChartLine - 4.0;
      draw_sample(i, at, row - 4.0);
      put_text(at + 23.0, row, "start", "label", layout_.keys[i]);
    }
    put_text(kChartEdge, layout_.top - 14.0, "start", "axis", caption_of(chart_.y));
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
    const Ruler &x_axis = layout_.x_axis, &y_axis = layout_.y_axis;
    for (std::size_t i = 0; i < y_axis.ticks().size(); ++i) {
      const double height = layout_.y(y_axis.ticks()[i]);
      put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>\n", layout_.left, height,
          layout_.right);
      put_text(layout_.left - 5.0, height + 4.0, "end", "tick", y_axis.labels()[i]);
    }
    put("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"base\"/>\n", layout_.left, layout_.bottom,
        layout_.right);
    double free = 0.0;  // labels that would touch the previous one are left out
    for (std::size_t i = 0; i < x_axis.ticks().size(); ++i) {
      const double at = layout_.x(x_axis.ticks()[i]);
      const double half = width_on_paper(x_axis.labels()[i]) / 2;
      if (at - half >= free) {
        put("<path d=\"M{:.1f} {:.1f}v4\" class=\"base\"/>\n", at, layout_.bottom);
        put_text(at, layout_.bottom + kChartLine, "middle", "tick", x_axis.labels()[i]);
        free = at + half + 6.0;
      }
    }
    put_text((layout_.left + layout_.right) / 2, layout_.bottom + 2 * kChartLine, "middle", "axis",
             caption_of(chart_.x));
  }

  void draw_series(const Series& series, const std::string& colour) {
    if (series.mark == Series::Mark::kBars) {
      draw_bars(series, colour);
      return;
    }
    std::string path;
    for (const ChartPoint& point : series.points) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                     layout_.x(point.x), layout_.y(point.y));
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
      put("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"dot "
          "{}\"><title>{}</title></circle>\n",
          layout_.x(point.x), layout_.y(point.y), radius, colour, escaped(words_of(series, point)));
    }
  }

  void draw_bars(const Series& series, const std::string& colour) {
    const double width = std::min(0.72 * (layout_.x(1.0) - layout_.x(0.0)), kWidestBar);
    for (const ChartPoint& point : series.points) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"bar {}\">"
          "<title>{}</title></rect>\n",
          layout_.x(point.x) - width / 2, layout_.y(point.y), width,
          layout_.y(0.0) - layout_.y(point.y), colour, escaped(words_of(series, point)));
    }
  }

  std::string words_of(const Series& series, const ChartPoint& point) const {
    const std::string x = text_of(chart_.x, point.x);
    return fmt::format("{}: {} at {}", series.name, text_of(chart_.y, point.y),
                       chart_.x.numbers == Axis::Numbers::kTokens ? x + " " + chart_.x.title
                                                                  : chart_.x.title + " " + x);
  }

  // Draws names at the right ends of their lines and moves them apart if they would overlap.
  void draw_end_labels() {
    constexpr double kApart = 12.5;
    std::vector<std::pair<double, std::string>> labels;
    for (const Series& series : chart_.series) {
      if (!series.points.empty()) {
        labels.emplace_back(layout_.y(series.points.back().y) + 4.0, series.name);
      }
    }
    for (const Threshold& threshold : chart_.thresholds) {
      labels.emplace_back(layout_.y(threshold.y) + 4.0, threshold.name);
    }
    std::ranges::stable_sort(labels, {}, [](const auto& label) { return label.first; });
    for (std::size_t i = 1; i < labels.size(); ++i) {
      labels[i].first = std::max(labels[i].first, labels[i - 1].first + kApart);
    }
    double lowest = layout_.bottom;  // labels that were moved below the axis are moved up again
    for (auto label = labels.rbegin(); label != labels.rend(); ++label, lowest -= kApart) {
      label->first = std::min(label->first, lowest);
    }
    for (const auto& [height, name] : labels) {
      put_text(layout_.right + 7.0, height, "start", "label", name);
    }
  }

  Chart chart_;
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

std::string text_of(const Axis& axis, double value) {
  switch (axis.numbers) {
    case Axis::Numbers::kPercent: return fmt::format("{:.4g} %", 100 * value);
    case Axis::Numbers::kBytes: return text_of_bytes(value);
    case Axis::Numbers::kTokens: return tokens_text(value);
    case Axis::Numbers::kPlain: break;
  }
  return std::abs(value) >= 1000 && std::abs(value) < 1e15 ? whole_text(value)
                                                           : fmt::format("{:.4g}", value);
}

bool Ruler::shows(const Axis& axis, double value) {
  return std::isfinite(value) && (axis.scale == Axis::Scale::kLinear || value > 0.0);
}

double Ruler::scaled(double value) const {
  return axis_.scale == Axis::Scale::kLog2    ? std::log2(value)
         : axis_.scale == Axis::Scale::kLog10 ? std::log10(value)
                                              : value;
}

double Ruler::unscaled(double value) const {
  return axis_.scale == Axis::Scale::kLog2    ? std::exp2(value)
         : axis_.scale == Axis::Scale::kLog10 ? std::pow(10.0, value)
                                              : value;
}

Ruler::Ruler(const Axis& axis, const std::vector<double>& values, bool snug) : axis_(axis) {
  std::vector<double> shown = mapped(values, [this](double value) { return scaled(value); });
  for (const auto& bound : {axis.low, axis.high}) {
    if (bound) {
      shown.push_back(scaled(*bound));
    }
  }
  if (!shown.empty()) {
    const auto [least, most] = std::minmax_element(shown.begin(), shown.end());
    low_ = *least;
    high_ = *most;
  }
  const bool logarithmic = axis.scale != Axis::Scale::kLinear;
  if (high_ - low_ <= 1e-12 * std::abs(high_)) {  // one value: adds room around it
    const double room = logarithmic ? 1.0 : std::abs(high_) < 1e-300 ? 1.0 : std::abs(high_) / 2;
    low_ -= room;
    high_ += room;
  }
  // Ticks of logarithmic axes are powers of the base, so a short axis grows to include two.
  const double step = step_for(high_ - low_, axis.whole || logarithmic);
  if (!snug) {
    low_ = step * std::floor(low_ / step + 1e-9);
    high_ = step * std::ceil(high_ / step - 1e-9);
  }
  for (double number = std::ceil(low_ / step - 1e-9); number * step <= high_ + 1e-9 * step;
       ++number) {
    ticks_.push_back(unscaled(number * step + 0.0));  // + 0: no "-0"
  }
  labels_ = labels_of(axis, ticks_);
}

double Ruler::position(double value) const { return (scaled(value) - low_) / (high_ - low_); }

std::string svg_of(const Chart& chart) { return element(chart, false); }

std::string svg_document(const Chart& chart) { return element(chart, true); }

// Colours have a contrast of at least 3:1 with their backgrounds and can be distinguished by
// colour-blind readers (after Okabe and Ito). Each colour also has its own dashes. Series that are
// steps of one quantity use r0 to r7, from violet to yellow.
std::string_view chart_style() {
  return R"(
.chart{--ground:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d8dee4;--c0:#0068a8;--c1:#c2540a;--c2:#00785a;
--c3:#a8447f;--c4:#5c4bb3;--c5:#8a6d00;--c6:#2b8aa8;--c7:#6e7781;
--r0:#3b2a7a;--r1:#34489c;--r2:#1f66ad;--r3:#107fa3;--r4:#0b8a84;--r5:#2a8a58;--r6:#5f8426;--r7:#8f7400;
font:12px system-ui,sans-serif}
@media screen and (prefers-color-scheme:dark){.chart{--ground:#14171a;--ink:#e6e9ec;--soft:#a3abb3;
--rule:#343a40;--c0:#5ab0ee;--c1:#f5915a;--c2:#3cc7a0;--c3:#e592c2;--c4:#a99bf5;--c5:#d9b83f;--c6:#6cc7e0;
--c7:#a3abb3;--r0:#b9a6ff;--r1:#97aeff;--r2:#72bbff;--r3:#4fc6ea;--r4:#3fcfc4;--r5:#62d492;--r6:#a2d35c;--r7:#e0c84a}}
.chart text{fill:var(--soft)}.chart .label{fill:var(--ink)}
.chart .chart-title{fill:var(--ink);font-size:14px;font-weight:600}
.chart .ground{fill:var(--ground)}
.chart path{fill:none}
.chart .grid{stroke:var(--rule);stroke-width:.7}.chart .base{stroke:var(--soft);stroke-width:1}
.chart .threshold{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:1 3}
.chart .line{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.chart .faint{stroke-width:1.2;stroke-opacity:.75}
.chart .dot{stroke:var(--ground);stroke-width:.8}
.chart .line.c0{stroke:var(--c0)}.chart .line.c1{stroke:var(--c1);stroke-dasharray:6 3}
.chart .line.c2{stroke:var(--c2);stroke-dasharray:1.5 3}.chart .line.c3{stroke:var(--c3);stroke-dasharray:8 3 2 3}
.chart .line.c4{stroke:var(--c4);stroke-dasharray:3 3}.chart .line.c5{stroke:var(--c5);stroke-dasharray:10 4}
.chart .line.c6{stroke:var(--c6);stroke-dasharray:2 2 6 2}.chart .line.c7{stroke:var(--c7);stroke-dasharray:4 2 1 2}
.chart .dot.c0,.chart .bar.c0{fill:var(--c0)}.chart .dot.c1,.chart .bar.c1{fill:var(--c1)}.chart .dot.c2,.chart .bar.c2{fill:var(--c2)}
.chart .dot.c3,.chart .bar.c3{fill:var(--c3)}.chart .dot.c4,.chart .bar.c4{fill:var(--c4)}.chart .dot.c5,.chart .bar.c5{fill:var(--c5)}
.chart .dot.c6,.chart .bar.c6{fill:var(--c6)}.chart .dot.c7,.chart .bar.c7{fill:var(--c7)}
.chart .line.r0{stroke:var(--r0)}.chart .dot.r0{fill:var(--r0)}.chart .line.r1{stroke:var(--r1)}.chart .dot.r1{fill:var(--r1)}
.chart .line.r2{stroke:var(--r2)}.chart .dot.r2{fill:var(--r2)}.chart .line.r3{stroke:var(--r3)}.chart .dot.r3{fill:var(--r3)}
.chart .line.r4{stroke:var(--r4)}.chart .dot.r4{fill:var(--r4)}.chart .line.r5{stroke:var(--r5)}.chart .dot.r5{fill:var(--r5)}
.chart .line.r6{stroke:var(--r6)}.chart .dot.r6{fill:var(--r6)}.chart .line.r7{stroke:var(--r7)}.chart .dot.r7{fill:var(--r7)}
)";
}

}  // namespace regroup
