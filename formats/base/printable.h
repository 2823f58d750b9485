// Makes names that come out of files safe to print: a terminal must never obey a checkpoint.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// `text` with control bytes, escapes and invalid UTF-8 shown as \xNN, cut to `max_bytes` (0:
/// never).
std::string printable(std::string_view text, std::size_t max_bytes = 200);

}  // namespace regroup
