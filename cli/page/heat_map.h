// Heat maps of the similarity between the heads of an attention, as SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// One square with a cell for each pair of heads.
struct HeatMap {
  std::string title;  ///< such as "layer 3, keys, aligned"
  std::size_t heads = 0;
  std::vector<double> values;  ///< [heads, heads], row-major, -1 (opposite) to 1 (the same)
  std::size_t group = 0;  ///< neighbouring heads that share one, drawn in a frame; 0: no frames
};

/// The CSS rules for the drawings, needed once per document.
std::string_view heat_map_style();

/// An <svg> element with that id. Cells that are not finite are left blank. Up to 8 heads, cells
/// show their values. The description gives the means within groups and between them. Throws
/// std::invalid_argument if `values` does not have heads * heads entries.
std::string svg_of(const HeatMap& map, const std::string& id);

/// "within groups 0.50, between groups 0.10"; a part without pairs is left out.
std::string means_of(const HeatMap& map);

/// The key of the colours, as an <svg> element.
std::string heat_map_key();

}  // namespace regroup
