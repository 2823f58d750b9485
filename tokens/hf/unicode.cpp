#include "tokens/hf/unicode.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/utf8.h"
#include "tokens/hf/newer_characters.h"

namespace regroup {
namespace {

using Range = std::pair<char32_t, char32_t>;

template <std::size_t kCount>
bool is_in(const std::array<Range, kCount>& ranges, char32_t character) {
  for (const auto& [first, last] : ranges) {
    if (character >= first && character <= last) {
      return true;
    }
  }
  return false;
}

// Symbols (So) that are alphabetic: letters in circles and squares.
constexpr std::array<Range, 4> kLetterSymbols{
    {{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}}};
constexpr std::array<Range, 8> kChinese{{{0x4e00, 0x9fff},
                                         {0x3400, 0x4dbf},
                                         {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f},
                                         {0x2b740, 0x2b81f},
                                         {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},
                                         {0x2f800, 0x2fa1f}}};

// Two letters, such as "Lu".
std::string_view category_of(char32_t character) {
  const auto code_point = static_cast<utf8proc_int32_t>(character);
  if (utf8proc_category(code_point) == UTF8PROC_CATEGORY_CN) {
    return newer_category(character);
  }
  return utf8proc_category_string(code_point);
}

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  options |= form == NormalForm::kNfkc || form == NormalForm::kNfkd ? UTF8PROC_COMPAT : 0;
  return static_cast<utf8proc_option_t>(options);
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
  return character == kBeforeFinalConsonants || is_unknown_to_normal_forms(character);
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

void append_character(std::string& text, char32_t character) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | (character >> shift & 0x3f));
  };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += static_cast<char>(0xc0 | character >> 6);
    tail(0);
  } else if (character < 0x10000) {
    text += static_cast<char>(0xe0 | character >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | character >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
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
         is_in(kLetterSymbols, character);
}

bool is_numeric(char32_t character) { return category_of(character).starts_with('N'); }

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character > ' ' && character < '0') || (character > '9' && character < 'A') ||
           (character > 'Z' && character < 'a') || (character > 'z' && character < 0x7f);
  }
  constexpr char32_t kOnceSign = 0x166d, kOnceMark = 0x111c9;  // by Unicode 8
  return character == kOnceSign || character == kOnceMark ||
         (category_of(character).starts_with('P') && !is_unknown_to_bert(character));
}

bool is_mark(char32_t character) {
  const bool once = character == 0x1cf2 || character == 0x1cf3;  // by Unicode 11
  return once ||
         (category_of(character).starts_with('M') && !is_unknown_to_normal_forms(character));
}

bool is_nonspacing_mark(char32_t character) {
  constexpr char32_t kOnce = 0x1734;  // by Unicode 13
  return character == kOnce || (category_of(character) == "Mn" && !is_unknown_to_bert(character));
}

bool is_control_character(char32_t character) {
  if (character == '\t' || character == '\n' || character == '\r') {
    return false;
  }
  const std::string_view category = category_of(character);
  return (category == "Cc" || category == "Cf" || category == "Co") &&
         !is_unknown_to_bert(character);
}

bool is_chinese_character(char32_t character) { return is_in(kChinese, character); }

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
      append_character(
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

}  // namespace regroup
