// The style of pages for narrow and wide screens, light and dark schemes and print.
#pragma once

#include <string_view>

namespace regroup {

/// CSS rules for everything except charts, which have their own.
std::string_view page_style();

}  // namespace regroup
