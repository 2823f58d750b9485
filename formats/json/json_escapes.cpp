#include "formats/json/json_escapes.h"

#include <cstdint>
#include <optional>

namespace regroup {
namespace {

std::optional<std::uint32_t> hex_value(char digit) {
  if (digit >= '0' && digit <= '9') {
    return static_cast<std::uint32_t>(digit - '0');
  }
  const char lower = static_cast<char>(digit | 0x20);
  return lower >= 'a' && lower <= 'f' ? std::optional(static_cast<std::uint32_t>(lower - 'a' + 10))
                                      : std::nullopt;
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](int bits) { put(0x80U | ((code >> bits) & 0x3fU)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0U | (code >> 6));
    put_rest(0);
  } else if (code < 0x10000) {
    put(0xe0U | (code >> 12));
    put_rest(6);
    put_rest(0);
  } else {
    put(0xf0U | (code >> 18));
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

// The byte at `at`; 0 at the end, where no escape has one.
char byte_at(std::string_view text, std::size_t at) { return at < text.size() ? text[at] : '\0'; }

// Reads a u and four hexadecimal digits. Returns nothing if there are fewer, with `at` at the
// error.
std::optional<std::uint32_t> read_code_unit(std::string_view text, std::size_t& at) {
  ++at;
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at) {
    const auto digit = hex_value(byte_at(text, at));
    if (!digit) {
      return std::nullopt;
    }
    code = code * 16 + *digit;
  }
  return code;
}

std::string_view append_unicode(std::string_view text, std::size_t& at, std::string& out) {
  constexpr std::string_view kTooShort = "four hexadecimal digits are needed after \\u";
  const auto code = read_code_unit(text, at);
  if (!code) {
    return kTooShort;
  }
  const bool high = *code >= 0xd800 && *code < 0xdc00;
  if (high && text.substr(at, 2) == "\\u") {
    ++at;
    const auto low = read_code_unit(text, at);
    if (!low) {
      return kTooShort;
    }
    if (*low >= 0xdc00 && *low < 0xe000) {
      append_utf8(out, 0x10000U + ((*code - 0xd800U) << 10) + (*low - 0xdc00U));
      return {};
    }
  }
  if (*code >= 0xd800 && *code < 0xe000) {
    return "an escape is half of a surrogate pair";
  }
  append_utf8(out, *code);
  return {};
}

}  // namespace

std::string_view append_unescaped(std::string_view text, std::size_t& at, std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  ++at;
  const char name = byte_at(text, at);
  if (name == 'u') {
    return append_unicode(text, at, out);
  }
  const std::size_t which = kNames.find(name);
  if (name == '\0' || which == std::string_view::npos) {
    return "a string contains an escape that JSON does not have";
  }
  out.push_back(kMeanings[which]);
  ++at;
  return {};
}

}  // namespace regroup
