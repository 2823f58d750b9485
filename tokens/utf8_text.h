// Where text is UTF-8 and where it is not, and where it may be cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

/// Bytes of `text` before the first that belongs to no well-formed sequence (formats/base/utf8.h):
/// all of them where there is none.
std::size_t valid_utf8_prefix(std::string_view text);

/// `text` with U+FFFD for each byte that belongs to no well-formed sequence.
std::string with_replacements(std::string_view text);

/// A place to cut `text` that is not behind `most`: the last one ahead of white space that follows
/// something else, else between two characters. Never 0 where `most` is 4 or more.
std::size_t cut_of_text(std::string_view text, std::size_t most);

}  // namespace regroup
