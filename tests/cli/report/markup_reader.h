// A strict reader of HTML and SVG: every tag must be closed in order and every text escaped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup {

struct Markup {
  std::vector<std::string> tags;        ///< names of elements, in the order in which they open
  std::vector<std::string> attributes;  ///< their names
  std::vector<std::string> ids;
  std::vector<std::string> references;  ///< what aria-labelledby and links inside the page point at
  std::string text;                     ///< between tags, entities resolved; styles left out
  std::string fault;                    ///< empty where all is well
};

/// Elements such as <meta> have no end tag.
Markup read_markup(std::string_view document);

}  // namespace regroup
