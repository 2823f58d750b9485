// Heat maps: the colours of their cells and their descriptions.
#include "cli/page/heat_map.h"

#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/cli/page/markup_reader.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("each cell has the colour of its value and equal neighbours are merged", "[cli]") {
  const HeatMap map{
      .title = "layer 0 & <1>", .heads = 2, .values = {1.0, -1.0, 0.0, 0.01}, .group = 0};
  const std::string svg = svg_of(map, "m");
  CHECK_THAT(svg, ContainsSubstring("class=\"h8\" d=\"M0 0h1v1h-1z\"") &&
                      ContainsSubstring("class=\"h0\" d=\"M1 0h1v1h-1z\"") &&
                      ContainsSubstring("class=\"h4\" d=\"M0 1h2v1h-2z\""));
  const Markup read = read_markup(svg);
  CHECK(read.fault.empty());
  CHECK_THAT(read.text, ContainsSubstring("layer 0 & <1>"));
}

TEST_CASE("a heat map reports the mean similarity within and between groups", "[cli]") {
  // Heads 0 and 1 share a kv head, and 2 and 3: 0.5 within, 0.1 between.
  HeatMap map{.title = "m", .heads = 4, .values = std::vector<double>(16, 0.1), .group = 2};
  for (const std::size_t cell : {1, 4, 11, 14}) {
    map.values[cell] = 0.5;
  }
  map.values[0] = std::nan("");  // the diagonal is not counted
  const std::string svg = svg_of(map, "m");
  CHECK_THAT(svg, ContainsSubstring("on average: within groups 0.50, between groups 0.10."));
  CHECK_THAT(svg, ContainsSubstring("class=\"frame\" d=\"M0 0h2v2h-2zM2 2h2v2h-2z\""));
  CHECK(means_of(map) == "within groups 0.50, between groups 0.10");
  const Markup key = read_markup(heat_map_key());
  CHECK(key.fault.empty());
  CHECK_THAT(key.text, ContainsSubstring("opposite") && ContainsSubstring("the same"));
}

TEST_CASE("cells of small heat maps show their values", "[cli]") {
  CHECK_THAT(
      svg_of(
          HeatMap{.title = "m", .heads = 2, .values = {1.0, -0.254, std::nan(""), 1.0}, .group = 0},
          "m"),
      ContainsSubstring(">-0.25</text>") && !ContainsSubstring("nan"));
  CHECK_THAT(
      svg_of(
          HeatMap{.title = "m", .heads = 16, .values = std::vector<double>(256, 0.5), .group = 0},
          "m"),
      !ContainsSubstring("</text>"));
}

TEST_CASE("a number of values that does not match the size is refused", "[cli]") {
  CHECK_THROWS_AS(
      svg_of(HeatMap{.title = "m", .heads = 2, .values = {1.0, 2.0, 3.0}, .group = 0}, "m"),
      std::invalid_argument);
}

}  // namespace
}  // namespace regroup
