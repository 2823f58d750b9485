// Charts: hand-computed axes, well-formed markup, escaped text.
#include "cli/report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>

#include "tests/cli/report/markup_reader.h"

namespace regroup {
namespace {

using Catch::Matchers::Approx;
using Catch::Matchers::ContainsSubstring;

Chart small_chart() {
  return {.id = "c",
          .title = "Loss",
          .description = "Loss by step.",
          .x = {.title = "step"},
          .y = {.title = "nats"},
          .series = {{"one", {{0, 1}, {10, 3}}},
                     {"two", {{0, 2}, {10, 1}}, Series::Mark::kLineAndDots}}};
}

TEST_CASE("a linear axis ends at round numbers around its values", "[cli]") {
  const Ruler ruler({.title = "y"}, {0.3, 4.4}, false);
  CHECK_THAT(ruler.ticks(), Approx(std::vector<double>{0, 1, 2, 3, 4, 5}));
  CHECK(ruler.position(0.0) == 0.0);
  CHECK(ruler.position(2.5) == 0.5);
  const Ruler snug({.title = "x"}, {0.3, 4.4}, true);
  CHECK_THAT(snug.ticks(), Approx(std::vector<double>{1, 2, 3, 4}));
  CHECK(std::abs(snug.position(4.4) - 1.0) < 1e-12);
}

TEST_CASE("a logarithmic axis has ticks at powers of its base", "[cli]") {
  const Ruler ruler({.title = "y", .scale = Axis::Scale::kLog2}, {3, 60}, false);
  CHECK_THAT(ruler.ticks(), Approx(std::vector<double>{2, 4, 8, 16, 32, 64}));
  CHECK(std::abs(ruler.position(8) - 0.4) < 1e-12);
  CHECK_FALSE(Ruler::shows({.title = "y", .scale = Axis::Scale::kLog2}, 0.0));
}

TEST_CASE("a whole-number axis has whole ticks and a single value gets a range", "[cli]") {
  const Ruler whole({.title = "layer", .whole = true}, {-0.5, 1.5}, true);
  CHECK_THAT(whole.ticks(), Approx(std::vector<double>{0, 1}));
  CHECK(whole.labels().front() == "0");  // not -0
  for (const double value : {0.0, 7.0, -7.0, 1e300, 5e-324}) {
    const Ruler one({.title = "y"}, {value, value}, false);
    CAPTURE(value);
    CHECK(one.position(value) >= 0.0);
    CHECK(one.position(value) <= 1.0);
    CHECK(one.ticks().size() < 20);
  }
}

TEST_CASE("all labels of an axis have the same format", "[cli]") {
  using Labels = std::vector<std::string>;
  const auto labels = [](const Axis& axis, const std::vector<double>& values) {
    return Ruler(axis, values, false).labels();
  };
  CHECK(labels({.title = "loss"}, {1.1, 2.9}) == Labels{"1.0", "1.5", "2.0", "2.5", "3.0"});
  CHECK(labels({.title = "rate"}, {0.0, 1e-4}) ==
        Labels{"0", "0.2e-4", "0.4e-4", "0.6e-4", "0.8e-4", "1.0e-4"});
  CHECK(labels({.title = "step"}, {0, 1200}) ==
        Labels{"0", "200", "400", "600", "800", "1,000", "1,200"});
  CHECK(labels({.title = "kept", .numbers = Axis::Numbers::kPercent}, {0.975, 1.0}) ==
        Labels{"97.5 %", "98.0 %", "98.5 %", "99.0 %", "99.5 %", "100.0 %"});
  CHECK(labels({.title = "slope", .scale = Axis::Scale::kLog2}, {0.125, 2.0}) ==
        Labels{"1/8", "1/4", "1/2", "1", "2"});
  CHECK(labels({.title = "cache", .scale = Axis::Scale::kLog2, .numbers = Axis::Numbers::kBytes},
               {512, 2048}) == Labels{"512 B", "1 KiB", "2 KiB"});
}

TEST_CASE("no label of an axis extends beyond the drawing", "[cli]") {
  Chart chart = small_chart();
  chart.series.front().points.back().x = 1200;
  const std::string svg = svg_of(chart);
  const std::size_t begin = svg.rfind("<text x=\"", svg.find(">1,200</text>"));
  CHECK(std::stod(svg.substr(begin + 9)) + 6.8 * 6 / 2 <= 360.0);
}

TEST_CASE("ordered series have graded colours and series may share a colour", "[cli]") {
  Chart chart = small_chart();
  chart.series[1].colour = 0;
  CHECK_THAT(svg_of(chart), ContainsSubstring("line c0") && !ContainsSubstring("c1\""));
  chart.ordered = true;
  CHECK_THAT(svg_of(chart), ContainsSubstring("line r0") && ContainsSubstring("line r7"));
}

TEST_CASE("a dot series draws no line and a threshold has its label next to the plot", "[cli]") {
  Chart chart = small_chart();
  chart.key = Chart::Key::kEndLabels;
  chart.series.resize(1);
  chart.series[0].mark = Series::Mark::kDots;
  chart.thresholds = {{2.0, "24 GiB"}};
  const std::string svg = svg_of(chart);
  CHECK(svg.find("class=\"line") == std::string::npos);
  const std::size_t begin = svg.rfind("<text x=\"", svg.find(">24 GiB</text>"));
  const std::size_t line = svg.find("class=\"threshold\"");
  const double end = std::stod(svg.substr(svg.rfind('H', line) + 1));
  CHECK(std::stod(svg.substr(begin + 9)) > end);
}

TEST_CASE("a chart is an image with a title and a description and names of its series", "[cli]") {
  for (const std::string& text : {svg_of(small_chart()), svg_document(small_chart())}) {
    const Markup svg = read_markup(text);
    CHECK(svg.fault.empty());
    CHECK(svg.references == std::vector<std::string>{"c-title", "c-description"});
    CHECK(svg.ids == svg.references);
    for (const char* word : {"Loss by step.", "one", "two", "nats", "step"}) {
      CHECK_THAT(svg.text, ContainsSubstring(word));
    }
  }
  CHECK_THAT(svg_document(small_chart()), ContainsSubstring("<style>"));
}

TEST_CASE("a line passes through its points", "[cli]") {
  Chart chart = small_chart();
  chart.series.resize(1);  // from (0, 1) to (10, 3): up by 2 on an axis from 1 to 3
  const std::string svg = svg_of(chart);
  const std::size_t begin = svg.find("<path d=\"M", svg.find("class=\"line") - 60);
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  REQUIRE(std::sscanf(svg.c_str() + begin, "<path d=\"M%lf %lfL%lf %lf\"", &x0, &y0, &x1, &y1) ==
          4);
  CHECK(x1 > x0 + 300);
  CHECK(std::abs((y0 - y1) - 180.0) < 0.2);
}

TEST_CASE("values that an axis cannot show are omitted and an empty chart is valid", "[cli]") {
  Chart chart = small_chart();
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  chart.series = {{"odd", {{0, nan}, {1, infinity}, {nan, 1}, {2, 5}}, Series::Mark::kLineAndDots}};
  const std::string svg = svg_of(chart);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(read_markup(svg).fault.empty());
  chart.series.clear();
  CHECK(read_markup(svg_of(chart)).fault.empty());
}

TEST_CASE("names in charts are escaped", "[cli]") {
  Chart chart = small_chart();
  chart.series[1].name = "</text><script>alert(1)</script>";
  chart.title = "\"><b>&";
  const Markup svg = read_markup(svg_document(chart));
  CHECK(svg.fault.empty());
  CHECK(std::count(svg.tags.begin(), svg.tags.end(), "script") == 0);
  CHECK(std::count(svg.tags.begin(), svg.tags.end(), "b") == 0);
  CHECK_THAT(svg.text, ContainsSubstring("<script>alert(1)</script>"));
}

TEST_CASE("labels at the ends of lines do not overlap", "[cli]") {
  Chart chart = small_chart();
  chart.key = Chart::Key::kEndLabels;
  chart.series = {
      {"first", {{0, 1}, {10, 1}}}, {"second", {{0, 2}, {10, 1}}}, {"third", {{0, 3}, {10, 1}}}};
  const std::string svg = svg_of(chart);
  const auto height_of = [&](const std::string& name) {
    const std::size_t begin = svg.rfind("y=\"", svg.find(">" + name + "</text>"));
    return std::stod(svg.substr(begin + 3));
  };
  CHECK(height_of("second") - height_of("first") > 11.0);
  CHECK(height_of("third") - height_of("second") > 11.0);
  CHECK(height_of("third") < height_of("step") - 20.0);  // apart from the axis title
}

}  // namespace
}  // namespace regroup
