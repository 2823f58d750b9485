// Text out of files as text in HTML and SVG: a page must never obey a checkpoint.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// `text` for use between tags and in quoted attributes: printable(), then & < > " ' spelled as
/// entities.
std::string escaped(std::string_view text);

}  // namespace regroup
