// Properties and forms of characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

// Characters: UTF-8 to code points and back, the classes that tokenizers ask for, normal forms. All
// of it is as in Python's `tokenizers`, whose parts know different versions of Unicode.

/// The code point that begins at `at`, and `at` moved behind it. `text` must be UTF-8.
char32_t next_character(std::string_view text, std::size_t& at);

void append_character(std::string& text, char32_t character);

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

// Characters on which the libraries here and those of Python's `tokenizers` disagree, because each
// library knows another version of Unicode. Without these tables, new emoji would get other ids.

/// The general category, such as "Lu", of a character that Unicode 15 and 16 added. PCRE2 10.42
/// knows Unicode 14, utf8proc 2.8 Unicode 15. Empty for others.
std::string_view newer_category(char32_t character);

/// Those of a category ("L", "Lu") or of the script Han, as the contents of PCRE2's classes.
std::string newer_characters(std::string_view property);

/// Whether a mark, a sign or a control character is newer than Unicode 8, which BERT's normalizer
/// and pre-tokenizer know: for them it has no category.
bool is_unknown_to_bert(char32_t character);

/// Whether a character is newer than the normal forms of the tokenizers package (Unicode 10 to 12):
/// for them it is no mark and does not decompose.
bool is_unknown_to_normal_forms(char32_t character);

}  // namespace regroup
