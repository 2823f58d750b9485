// How much the heads of an attention resemble one another, as a square of colours.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// One square: every head beside every head.
struct HeatMap {
  std::string title;  ///< such as "layer 3, keys, aligned"
  std::size_t heads = 0;
  std::vector<double> values;  ///< [heads, heads], row-major, -1 (opposite) to 1 (the same)
  std::size_t group = 0;       ///< heads side by side that share one, framed; 0: no frames
};

/// The rules that the drawings need, once per document.
std::string_view heat_map_style();

/// An <svg> element of that id; a value that is no number is left blank. Cells of few heads have
/// their values written in them. Its description gives the mean within groups and between them.
/// Throws std::invalid_argument where `values` do not fill the square.
std::string svg_of(const HeatMap& map, const std::string& id);

/// "within groups 0.50, between groups 0.10", each where there are such pairs.
std::string means_of(const HeatMap& map);

/// What the colours stand for, as an <svg> element.
std::string heat_map_key();

}  // namespace regroup
