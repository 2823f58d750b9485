#include "cli/page/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <tuple>

#include <fmt/format.h>

#include "cli/page/markup.h"
#include "cli/terminal/text.h"

namespace regroup {
namespace {

constexpr std::size_t kLevels = 9;  // colours for values from -1 to 1

std::optional<std::size_t> level_of(double value) {
  if (!std::isfinite(value)) {
    return std::nullopt;
  }
  const double share = (std::clamp(value, -1.0, 1.0) + 1.0) / 2.0;
  return std::min(static_cast<std::size_t>(share * kLevels), kLevels - 1);
}

// One path per level, made of the runs of cells with that level in each row.
std::array<std::string, kLevels> paths_of(const HeatMap& map) {
  std::array<std::string, kLevels> paths;
  for (std::size_t row = 0; row < map.heads; ++row) {
    for (std::size_t begin = 0, end = 0; begin < map.heads; begin = end) {
      const auto level = level_of(map.values[row * map.heads + begin]);
      for (end = begin + 1; end < map.heads && level_of(map.values[row * map.heads + end]) == level;
           ++end) {
      }
      if (level) {
        fmt::format_to(std::back_inserter(paths[*level]), "M{} {}h{}v1h-{}z", begin, row,
                       end - begin, end - begin);
      }
    }
  }
  return paths;
}

// The mean over pairs of different heads, either within groups or between them; none without pairs.
std::optional<double> mean_of(const HeatMap& map, bool within) {
  double sum = 0.0, count = 0.0;
  for (std::size_t a = 0; a < map.heads; ++a) {
    for (std::size_t b = 0; b < map.heads; ++b) {
      const bool together = map.group > 0 && a / map.group == b / map.group;
      const double value = map.values[a * map.heads + b];
      if (a != b && together == within && std::isfinite(value)) {
        sum += value;
        count += 1.0;
      }
    }
  }
  return count > 0.0 ? std::optional(sum / count) : std::nullopt;
}

// The values as text, if cells are large enough; light text on strong colours.
std::string numbers_of(const HeatMap& map) {
  constexpr std::size_t kMostHeads = 8;
  std::string text;
  for (std::size_t i = 0; map.heads <= kMostHeads && i < map.values.size(); ++i) {
    if (const auto level = level_of(map.values[i])) {
      const bool strong = *level < 2 || *level + 2 >= kLevels;
      fmt::format_to(std::back_inserter(text), "<text x=\"{}.5\" y=\"{}.6\" class=\"{}\">{}</text>",
                     i % map.heads, i / map.heads, strong ? "strong" : "weak",
                     two_decimals(map.values[i]));
    }
  }
  return text.empty() ? "" : fmt::format("<g class=\"values\">{}</g>\n", text);
}

std::string frames_of(const HeatMap& map) {
  std::string path;
  for (std::size_t at = 0; map.group > 1 && at < map.heads; at += map.group) {
    const std::size_t side = std::min(map.group, map.heads - at);
    fmt::format_to(std::back_inserter(path), "M{} {}h{}v{}h-{}z", at, at, side, side, side);
  }
  return path.empty() ? "" : fmt::format("<path class=\"frame\" d=\"{}\"/>\n", path);
}

}  // namespace

std::string means_of(const HeatMap& map) {
  std::string text;
  for (const bool within : {true, false}) {
    if (const auto mean = mean_of(map, within)) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          within          ? "within groups"
                          : map.group > 0 ? "between groups"
                                          : "two heads",
                          two_decimals(*mean));
    }
  }
  return text;
}

std::string svg_of(const HeatMap& map, const std::string& id) {
  if (map.values.size() != map.heads * map.heads) {
    throw std::invalid_argument("a heat map needs one value for each pair of heads");
  }
  std::string cells;
  const auto paths = paths_of(map);
  for (std::size_t level = 0; level < kLevels; ++level) {
    if (!paths[level].empty()) {
      cells += fmt::format("<path class=\"h{}\" d=\"{}\"/>\n", level, paths[level]);
    }
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"heat\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-labelledby=\"{}-title {}-description\">\n<title id=\"{}-title\">{}</title>\n"
      "<desc id=\"{}-description\">Similarity of {} heads with one another, on average: "
      "{}.</desc>\n{}{}{}</svg>\n",
      map.heads, map.heads, id, id, id, escaped(map.title), id, map.heads, means_of(map), cells,
      numbers_of(map), frames_of(map));
}

std::string heat_map_key() {
  std::string cells, words;
  for (std::size_t level = 0; level < kLevels; ++level) {
    cells += fmt::format("<path class=\"h{}\" d=\"M{} 0h40v10h-40z\"/>", level, 40 * level);
  }
  for (const auto& [x, anchor, word] :
       {std::tuple{0, "start", "-1: opposite"}, std::tuple{180, "middle", "0: nothing in common"},
        std::tuple{360, "end", "1: the same"}}) {
    words += fmt::format("<text x=\"{}\" y=\"24\" text-anchor=\"{}\">{}</text>", x, anchor, word);
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"heat-key\" viewBox=\"0 0 360 28\" "
      "role=\"img\" aria-label=\"Colours: -1 opposite, 0 nothing in common, 1 the same\">{}{}</svg>"
      "\n",
      cells, words);
}

// Colours go from brown to blue; the middle is close to the background, so it is dark grey in the
// dark scheme.
std::string_view heat_map_style() {
  return R"(
.heat,.heat-key{--h0:#8c4a03;--h1:#bd7322;--h2:#dba960;--h3:#f0d9ae;--h4:#eef0f2;--h5:#bddbe9;--h6:#75b1d3;--h7:#3182bd;
--h8:#08468b;--frame:#1b1f24;--soft:#57606a;--strong:#fff;--weak:#1b1f24;font:11px system-ui,sans-serif}
@media screen and (prefers-color-scheme:dark){.heat,.heat-key{--h0:#f5c285;--h1:#d9954a;--h2:#a56a28;--h3:#5f4426;
--h4:#2b3036;--h5:#28495d;--h6:#2f7099;--h7:#4ba3d6;--h8:#a8dcff;--frame:#e6e9ec;--soft:#a3abb3;--strong:#14171a;--weak:#e6e9ec}}
.heat path,.heat-key path{stroke:none}.heat .frame{fill:none;stroke:var(--frame);stroke-width:1.4px;
vector-effect:non-scaling-stroke}.heat-key text{fill:var(--soft)}
.heat .values{font-size:.3px;text-anchor:middle}.heat .strong{fill:var(--strong)}.heat .weak{fill:var(--weak)}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.h5{fill:var(--h5)}.h6{fill:var(--h6)}.h7{fill:var(--h7)}.h8{fill:var(--h8)}
)";
}

}  // namespace regroup
