// What a character of UTF-8 is; the one place that knows.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup {

/// Bytes of the well-formed sequence (Unicode 15, table 3-7: no overlong forms, no surrogates,
/// nothing above U+10FFFF) that begins at `at`, which lies in `text`: 1 to 4, or 0 where none does.
std::size_t utf8_sequence(std::string_view text, std::size_t at = 0);

/// Whether `byte` is one that goes on a sequence.
constexpr bool continues_utf8(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace regroup
