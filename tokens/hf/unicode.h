// Characters: UTF-8 to code points, the classes that tokenizers ask for, normal forms. All of it is
// as in Python's `tokenizers`, whose parts know different versions of Unicode.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

/// The code point that begins at `at`, and `at` moved behind it. `text` must be UTF-8.
char32_t next_character(std::string_view text, std::size_t& at);

constexpr bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

/// Unicode's White_Space.
bool is_white_space(char32_t character);
/// What regular expressions of the Rust libraries match with \w: letters, marks, digits, joiners.
bool is_word_character(char32_t character);
/// General category N: digits and other numbers.
bool is_numeric(char32_t character);
/// General category P, and the other signs of ASCII: $ + < = > ^ ` | ~.
bool is_punctuation(char32_t character);
/// General category M, or only Mn.
bool is_mark(char32_t character);
bool is_nonspacing_mark(char32_t character);
/// Control, format and private-use characters, but not tab, line feed and carriage return.
bool is_control_character(char32_t character);
/// The blocks of Chinese characters that BERT's tokenizer surrounds by spaces.
bool is_chinese_character(char32_t character);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normal_form(const std::string& text, NormalForm form);

/// Lower case, each character by itself.
std::string lower_case(const std::string& text);

/// The number of bytes of the first user-perceived character (extended grapheme cluster). `text` is
/// not empty.
std::size_t first_grapheme(std::string_view text);

/// The characters of a category ("L", "Lu") or of the script Han that PCRE2 does not know yet, as
/// the contents of its classes.
std::string newer_characters(std::string_view property);

}  // namespace regroup
