#include "tokens/hf/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

struct Range {
  char32_t first = 0, last = 0;
};

// Ranges of characters, in order, from a text such as "7fd 890-891".
class Ranges {
 public:
  constexpr explicit Ranges(std::string_view text) {
    for (; !text.empty(); text.remove_prefix(text.starts_with(' ') ? 1 : 0)) {
      const char32_t first = taken_number(text);
      const bool single = !text.starts_with('-');
      text.remove_prefix(single ? 0 : 1);
      list_[size_++] = {first, single ? first : taken_number(text)};
    }
  }

  constexpr const Range* begin() const { return list_.data(); }
  constexpr const Range* end() const { return list_.data() + size_; }

  bool contains(char32_t character) const {
    const Range* const found = std::lower_bound(
        begin(), end(), character, [](const Range& range, char32_t c) { return range.last < c; });
    return found != end() && character >= found->first;
  }

 private:
  static constexpr char32_t taken_number(std::string_view& text) {
    char32_t number = 0;
    for (; !text.empty() && text[0] != ' ' && text[0] != '-'; text.remove_prefix(1)) {
      number = 16 * number + static_cast<char32_t>(text[0] - (text[0] < 'a' ? '0' : 'a' - 10));
    }
    return number;
  }

  std::array<Range, 131> list_{};
  std::size_t size_ = 0;
};

// Characters on which the libraries here and those of Python's `tokenizers` disagree, because each
// library knows another version of Unicode. Without these tables, new emoji would get other ids.

// All tables are measured: each character went through the tokenizers package (0.23) and through
// the libraries of Debian 12.

// Characters that Unicode 15 and 16 added, by category. PCRE2 10.42 knows Unicode 14, utf8proc 2.8
// Unicode 15.
constexpr auto kNewer = std::to_array<std::pair<std::string_view, Ranges>>({
    {"Cf", Ranges("13439-1343f")},
    {"Ll", Ranges("1c8a a7cd a7db 10d70-10d85 1df25-1df2a")},
    {"Lm", Ranges("10d4e 10d6f 16d40-16d42 16d6b-16d6c 1e030-1e06d 1e4eb")},
    {"Lo", Ranges("105c0-105f3 10d4a-10d4d 10d4f 10ec2-10ec4 1123f-11240 11380-11389 1138b 1138e "
                  "11390-113b5 113b7 113d1 113d3 11bc0-11be0 11f02 11f04-11f10 11f12-11f33 1342f "
                  "13441-13446 13460-143fa 16100-1611d 16d43-16d6a 18cff 1b132 1b155 1e4d0-1e4ea "
                  "1e5d0-1e5ed 1e5f0 2b739 2ebf0-2ee5d 31350-323af")},
    {"Lu", Ranges("1c89 a7cb-a7cc a7da a7dc 10d50-10d65")},
    {"Mc", Ranges("cf3 113b8-113ba 113c2 113c5 113c7-113ca 113cc-113cd 113cf 11f03 11f34-11f35 "
                  "11f3e-11f3f 11f41 1612a-1612c")},
    {"Mn",
     Ranges("897 ece 10d69-10d6d 10efc-10eff 11241 113bb-113c0 113ce 113d0 113d2 113e1-113e2 "
            "11f00-11f01 11f36-11f3a 11f40 11f42 11f5a 13440 13447-13455 1611e-16129 1612d-1612f "
            "1e08f 1e4ec-1e4ef 1e5ee-1e5ef")},
    {"Nd",
     Ranges("10d40-10d49 116d0-116e3 11bf0-11bf9 11f50-11f59 16130-16139 16d70-16d79 1ccf0-1ccf9 "
            "1e4f0-1e4f9 1e5f1-1e5fa")},
    {"No", Ranges("1d2c0-1d2d3")},
    {"Pd", Ranges("10d6e")},
    {"Po",
     Ranges("1b4e-1b4f 1b7f 113d4-113d5 113d7-113d8 11b00-11b09 11be1 11f43-11f4f 16d6d-16d6f "
            "1e5ff")},
    {"Sm", Ranges("10d8e-10d8f")},
    {"So",
     Ranges("2427-2429 2ffc-2fff 31e4-31e5 31ef 1cc00-1ccef 1cd00-1ceb3 1f6dc 1f774-1f776 "
            "1f77b-1f77f 1f7d9 1f8b2-1f8bb 1f8c0-1f8c1 1fa75-1fa77 1fa87-1fa89 1fa8f 1faad-1faaf "
            "1fabb-1fabf 1fac6 1face-1facf 1fada-1fadc 1fadf 1fae8-1fae9 1faf7-1faf8 1fbcb-1fbef")},
});

// Marks, signs and control characters that are newer than Unicode 8, which BERT's normalizer and
// pre-tokenizer know: for them they have no category.
constexpr Ranges kUnknownToBert(
    "61d 7fd 890-891 897-89f 8ca-8e2 9fd-9fe a76 afa-aff b55 c04 c3c c77 c84 d00 d3b-d3c d81 eba "
    "ece 180f 1885-1886 1abf-1ace 1b4e-1b4f 1b7d-1b7f 1df6-1dfb 2e43-2e4f 2e52-2e5d a82c a8c5 "
    "a8ff a9bd 10d24-10d27 10d69-10d6e 10eab-10ead 10efc-10eff 10f46-10f50 10f55-10f59 "
    "10f82-10f89 11070 11073-11074 110c2 110cd 111c9 111cf 1123e 11241 1133b 113bb-113c0 113ce "
    "113d0 113d2 113d4-113d5 113d7-113d8 113e1-113e2 11438-1143f 11442-11444 11446 1144b-1144f "
    "1145a-1145b 1145d-1145e 11660-1166c 116b9 1182f-11837 11839-1183b 1193b-1193c 1193e "
    "11943-11946 119d4-119d7 119da-119db 119e0 119e2 11a01-11a0a 11a33-11a38 11a3b-11a47 "
    "11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a9c 11a9e-11aa2 11b00-11b09 11be1 11c30-11c36 "
    "11c38-11c3d 11c3f 11c41-11c45 11c70-11c71 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 "
    "11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 "
    "11ef7-11ef8 11f00-11f01 11f36-11f3a 11f40 11f42-11f4f 11f5a 11fff 12ff1-12ff2 13430-13440 "
    "13447-13455 1611e-16129 1612d-1612f 16d6d-16d6f 16e97-16e9a 16f4f 16fe2 16fe4 1cf00-1cf2d "
    "1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 "
    "1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e5ff 1e944-1e94a 1e95e-1e95f");

// Characters that are newer than the normal forms of the tokenizers package (Unicode 10 to 12): for
// them they are no marks and do not decompose.
constexpr Ranges kUnknownToNormalForms(
    "7fd 897-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f 1abf-1ace "
    "1cf7 1df6-1dfa 32ff a7f2-a7f4 a82c a8ff ab69 10781-10785 10787-107b0 107b2-107ba "
    "10d24-10d27 10d69-10d6d 10eab-10eac 10efc-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 "
    "110c2 11145-11146 111c9 111ce-111cf 11241 1133b 113b8-113c0 113c2 113c5 113c7-113ca "
    "113cc-113d0 113d2 113e1-113e2 1145e 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 "
    "11942-11943 119d1-119d7 119da-119e0 119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 "
    "11a51-11a5b 11a8a-11a99 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d8a-11d8e "
    "11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 11f5a 13440 "
    "13447-13455 1611e-1612f 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46 "
    "1e030-1e06d 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1f16c 1fbf0-1fbf9");

constexpr Ranges kNewerHan("2b739 2ebf0-2ee5d 31350-323af");

// Symbols (So) that are alphabetic: letters in circles and squares.
constexpr Ranges kLetterSymbols("24b6-24e9 1f130-1f149 1f150-1f169 1f170-1f189");
constexpr Ranges kChinese(
    "3400-4dbf 4e00-9fff f900-faff 20000-2a6df 2a700-2b73f 2b740-2b81f 2b920-2ceaf 2f800-2fa1f");

// Two letters, such as "Lu".
std::string_view category_of(char32_t character) {
  const auto code_point = static_cast<utf8proc_int32_t>(character);
  if (utf8proc_category(code_point) == UTF8PROC_CATEGORY_CN) {
    const auto* const newer = std::ranges::find_if(
        kNewer, [&](const auto& each) { return each.second.contains(character); });
    return newer == kNewer.end() ? std::string_view() : newer->first;
  }
  return utf8proc_category_string(code_point);
}

utf8proc_option_t options_of(NormalForm form) {
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

void append_normal_form(std::string& result, std::string_view text, NormalForm form) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) {
    throw_environment("utf8proc: {}", utf8proc_errmsg(length));
  }
  result.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

// Characters that stay as they are and divide the text: those that the reference does not know, and
// one that utf8proc 2.8 takes for a final consonant of Hangul and drops.
bool is_inert(char32_t character) {
  constexpr char32_t kBeforeFinalConsonants = 0x11a7;
  return character == kBeforeFinalConsonants || kUnknownToNormalForms.contains(character);
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t character = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length && at + i < text.size(); ++i) {
    character = character << 6 | (byte(at + i) & 0x3fU);
  }
  at += std::min(length, text.size() - at);
  return character;
}

bool is_white_space(char32_t character) {
  return character == ' ' || (character >= 9 && character <= 13) || character == 0x85 ||
         character == 0xa0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200a) ||
         character == 0x2028 || character == 0x2029 || character == 0x202f || character == 0x205f ||
         character == 0x3000;
}

bool is_word_character(char32_t character) {
  const std::string_view category = category_of(character);
  return category.starts_with('L') || category.starts_with('M') || category == "Nd" ||
         category == "Nl" || category == "Pc" || character == 0x200c || character == 0x200d ||
         kLetterSymbols.contains(character);
}

bool is_numeric(char32_t character) { return category_of(character).starts_with('N'); }

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') ||
           (character > 'Z' && character < 'a') || (character > 'z' && character < 0x7f);
  }
  constexpr char32_t kOnceSign = 0x166d, kOnceMark = 0x111c9;  // by Unicode 8
  return character == kOnceSign || character == kOnceMark ||
         (category_of(character).starts_with('P') && !kUnknownToBert.contains(character));
}

bool is_mark(char32_t character) {
  const bool once = character == 0x1cf2 || character == 0x1cf3;  // by Unicode 11
  return once ||
         (category_of(character).starts_with('M') && !kUnknownToNormalForms.contains(character));
}

bool is_nonspacing_mark(char32_t character) {
  constexpr char32_t kOnce = 0x1734;  // by Unicode 13
  return character == kOnce ||
         (category_of(character) == "Mn" && !kUnknownToBert.contains(character));
}

bool is_control_character(char32_t character) {
  if (character == '\t' || character == '\n' || character == '\r') {
    return false;
  }
  const std::string_view category = category_of(character);
  return (category == "Cc" || category == "Cf" || category == "Co") &&
         !kUnknownToBert.contains(character);
}

bool is_chinese_character(char32_t character) { return kChinese.contains(character); }

// ASCII is its own normal form and never composes with what precedes it. Only the other parts, each
// with the ASCII character before it, go through the library.
std::string normal_form(const std::string& text, NormalForm form) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  std::size_t done = 0;
  while (done < text.size()) {
    std::size_t at = done;
    while (at < text.size() && is_ascii(text[at])) {
      ++at;
    }
    if (at == text.size()) {
      break;
    }
    const std::size_t begin = at > done ? at - 1 : at;
    result.append(text, done, begin - done);
    std::size_t end = at;
    bool inert = false;
    while (at < text.size() && !is_ascii(text[at]) && !inert) {
      end = at;
      inert = is_inert(next_character(text, at));
    }
    end = inert ? end : at;
    append_normal_form(result, std::string_view(text).substr(begin, end - begin), form);
    result.append(text, end, at - end);
    done = at;
  }
  return result.append(text, done);
}

std::string lower_case(const std::string& text) {
  constexpr char32_t kDottedI = 0x130;  // the only one whose lower case is two characters
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(text[at])) {
      const char byte = text[at++];
      lower += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
      continue;
    }
    const char32_t character = next_character(text, at);
    if (character == kDottedI) {
      lower += "i\u0307";
    } else {
      append_utf8(
          lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  }
  return lower;
}

std::size_t first_grapheme(std::string_view text) {
  std::size_t at = 0;
  auto before = static_cast<utf8proc_int32_t>(next_character(text, at));
  for (utf8proc_int32_t state = 0; at < text.size();) {
    std::size_t next = at;
    const auto character = static_cast<utf8proc_int32_t>(next_character(text, next));
    if (utf8proc_grapheme_break_stateful(before, character, &state)) {
      break;
    }
    before = character;
    at = next;
  }
  return at;
}

std::string newer_characters(std::string_view property) {
  std::string ranges;
  const auto put = [&](const Ranges& added) {
    for (const auto& [first, last] : added) {
      ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", std::uint32_t{first}, std::uint32_t{last});
    }
  };
  if (property == "Han") {
    put(kNewerHan);
  }
  for (const auto& [category, added] : kNewer) {
    if (category.starts_with(property)) {
      put(added);
    }
  }
  return ranges;
}

}  // namespace regroup
