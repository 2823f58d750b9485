// What a text input holds, by its first bytes: plain text, JSON lines, or something that must not
// be taken for text.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup {

/// So many bytes of an input are enough to decide.
inline constexpr std::size_t kTextSample = 64U << 10;

enum class TextKind {
  kPlain,
  kJsonLines,  ///< one JSON object per line
  kJson,       ///< other JSON: an array, objects over several lines or several on one
};

/// The kind of text that begins with `start`.
TextKind text_kind_of(std::string_view start);

/// Throws kBadInput for containers, compressed data, text in UTF-16 or UTF-32 and, if the text is
/// to be UTF-8, for other bytes that are no text. The message names `name`, the format and a way to
/// read it.
void check_is_text(std::string_view start, std::string_view name, bool utf8);

/// Throws kBadInput for JSON that is not JSON lines.
[[noreturn]] void refuse_json(std::string_view start, std::string_view name);

}  // namespace regroup
