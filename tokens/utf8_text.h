// Finds and replaces invalid UTF-8, and finds places to cut text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

/// The number of bytes before the first invalid one (see formats/base/utf8.h); text.size() if all
/// are valid.
std::size_t valid_utf8_prefix(std::string_view text);

/// `text` with each invalid byte replaced by U+FFFD.
std::string with_replacements(std::string_view text);

/// The place to cut `text`, at most `most` bytes in: before the last single space between two other
/// characters, where tokenizers cut as well. If there is none in the second half, before the last
/// white space that follows a non-space, or else between two characters. Never 0 if `most` is at
/// least 4.
std::size_t cut_of_text(std::string_view text, std::size_t most);

}  // namespace regroup
