// Characters on which the libraries here and those of Python's `tokenizers` disagree, because each
// library knows another version of Unicode. Without these tables, new emoji would get other ids.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

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
