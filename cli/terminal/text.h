// Numbers as people read them, and reports as machines do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json/json.h"

namespace regroup {

/// "512 B", "2.5 MiB", "12.6 GiB": powers of 1024, whatever the bytes are of.
std::string text_of_bytes(double bytes);
/// "6.74 B", "124 M", "812 K": a count of parameters or tokens.
std::string text_of_count(double count);
/// "12,345".
std::string with_thousands(std::uint64_t number);
/// "42 s", "3 min 20 s", "2 h 05 min".
std::string text_of_duration(double seconds);
/// Kv heads per layer: "8" where all agree, else runs of layers, "8 x 30, 4 x 2 (heads x layers)";
/// where there are many runs, each number once with all its layers.
std::string text_of_heads(const std::vector<std::int64_t>& heads);
/// Code points, which is columns where none is wide.
std::size_t width_of(std::string_view text);
/// `count` code points from number `first` on.
std::string code_points(std::string_view text, std::size_t first, std::size_t count);
/// Each line broken between words, so that it is no wider than `columns`; what is broken off is
/// indented. Numbers stay with the unit behind them, and words that are too long stay whole.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

/// A report for machines, in ASCII: names out of files reach a terminal escaped, and paths that are
/// no UTF-8 with their odd bytes replaced. NaN and infinities, which JSON does not have, become
/// "nan", "inf" and "-inf": null is what is not known.
std::string text_of_json(const Json& report);

}  // namespace regroup
