// UTF-8 validation; the only implementation in the project.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup {

/// Length in bytes (1 to 4) of the well-formed sequence that begins at `at`, or 0 if there is none.
/// Well-formed is Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
/// `at` must be inside `text`.
std::size_t utf8_sequence(std::string_view text, std::size_t at = 0);

/// Whether `byte` is a continuation byte.
constexpr bool continues_utf8(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace regroup
