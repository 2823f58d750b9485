// Prepares the text of a config file for toml++.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// Rewrites TOML in ASCII, line by line. toml++ 3.3 has undefined behaviour for non-ASCII
/// characters outside of strings, and in invalid TOML it may find other string boundaries than this
/// function does. Non-ASCII characters become escapes within double quotes and are dropped with the
/// comments that contain them. Throws kUsage, as `shown`:line, for non-ASCII characters elsewhere,
/// invalid UTF-8, control characters, and multi-line strings, which no option needs.
std::string ascii_toml(std::string_view text, std::string_view shown);

}  // namespace regroup
