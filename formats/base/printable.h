// Text: UTF-8, names made safe to print, the nearest known word, Base64.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// Length in bytes (1 to 4) of the well-formed sequence that begins at `at`, or 0 if there is none.
/// Well-formed is Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
/// `at` must be inside `text`.
std::size_t utf8_sequence(std::string_view text, std::size_t at = 0);

/// The number of bytes before the first invalid one; text.size() if all are valid.
std::size_t valid_utf8_prefix(std::string_view text);

inline bool is_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

/// Whether `byte` is a continuation byte.
constexpr bool continues_utf8(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

/// Appends a code point up to U+10FFFF.
void append_utf8(std::string& text, char32_t code_point);

/// Replaces each `from`, which is not empty.
void replace_all(std::string& text, std::string_view from, std::string_view to);

// Makes names read from files safe to print, so that a checkpoint cannot send terminal escapes.

/// Returns `text` with control bytes, escapes and invalid UTF-8 shown as \xNN, cut to `max_bytes`
/// (0: no limit).
std::string printable(std::string_view text, std::size_t max_bytes = 200);

/// The whole path.
std::string printable_path(const std::filesystem::path& path);

/// The number of letters to add, remove, replace or swap with a neighbour to turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The name nearest to `typed`. Empty if for all names more than a third of the letters differ and
/// none begins with `typed`.
std::string nearest_name(std::string_view typed, const std::vector<std::string>& names);

/// The first `shown` of the sentences, joined by "; ", and how many more there are.
std::string first_of(const std::vector<std::string>& sentences, std::size_t shown);

// Base64 with padding, RFC 4648.

std::string base64_of(std::string_view bytes);

/// The bytes of Base64 with padding; nothing for other text.
std::optional<std::string> bytes_of_base64(std::string_view text);

/// A small file that is yet to be written.
struct NamedText {
  std::string name;  ///< of the file, without a folder
  std::string text;  ///< its bytes
};

}  // namespace regroup
