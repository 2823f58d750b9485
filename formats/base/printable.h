// Makes names read from files safe to print, so that a checkpoint cannot send terminal escapes.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// Returns `text` with control bytes, escapes and invalid UTF-8 shown as \xNN, cut to `max_bytes`
/// (0: no limit).
std::string printable(std::string_view text, std::size_t max_bytes = 200);

}  // namespace regroup
