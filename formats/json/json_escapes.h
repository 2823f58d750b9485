// Decodes the escapes in JSON strings, for json_events.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

/// Decodes the escape whose backslash is text[at], or the two escapes of a surrogate pair. Appends
/// the character to `out` and moves `at` past the escape. For an invalid escape, returns why it is
/// invalid and leaves `at` at the error; otherwise returns an empty text.
std::string_view append_unescaped(std::string_view text, std::size_t& at, std::string& out);

}  // namespace regroup
