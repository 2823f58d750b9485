// Escapes text for HTML and SVG: names in a checkpoint must not inject markup into a page.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// `text` for use between tags and in quoted attributes: applies printable() and replaces & < > " '
/// by entities.
std::string escaped(std::string_view text);

}  // namespace regroup
