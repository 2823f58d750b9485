// How pages look: on phones and wide screens, in the dark, on paper.
#pragma once

#include <string_view>

namespace regroup {

/// Rules for all but the charts, which bring their own.
std::string_view page_style();

}  // namespace regroup
