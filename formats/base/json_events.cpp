#include "formats/base/json_events.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// The plain bytes of a string: ASCII except the quote, the backslash and control characters.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t byte = 0x20; byte < 0x80; ++byte) {
    plain[byte] = byte != '"' && byte != '\\';
  }
  return plain;
}();

// The number of plain bytes among eight before the first that is not. All eight are tested in
// parallel: the high bit of b - 0x20 is set if b < 0x20, that of (b ^ c) - 1 if b == c. Borrows may
// make results after the first byte that is not plain wrong.
std::size_t plain_of_eight(const char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::uint64_t eight = 0;
  std::memcpy(&eight, bytes, sizeof(eight));
  const auto equal = [&](char c) {
    return (eight ^ kEach * static_cast<unsigned char>(c)) - kEach;
  };
  const std::uint64_t found = eight | (eight - kEach * 0x20) | equal('"') | equal('\\');
  return static_cast<std::size_t>(std::countr_zero(found & kEach * 0x80)) / 8;
}

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Whether these digits are a number below 2^64.
bool fits(std::string_view digits) {
  constexpr std::size_t kCertain = 19;  // as many always are
  std::uint64_t value = 0;
  return digits.size() <= kCertain ||
         std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
}

}  // namespace

void JsonReader::refuse(std::string_view why) const {
  throw_bad_input("{} not valid JSON at byte {}: {}", what_, at_,
                  at_ < text_.size() ? why : "the text ends");
}

// The next byte; 0 at the end, where no JSON value has one.
char JsonReader::peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

JsonEvent JsonReader::next() {
  skip_space();
  if (open_.empty()) {
    if (!std::exchange(begun_, true)) {
      return value();
    }
    if (at_ != text_.size()) {
      refuse("nothing but white space may follow the value");
    }
    return {JsonKind::kEnd};
  }
  if (std::exchange(after_key_, false)) {
    if (peek() != ':') {
      refuse("a colon is needed");
    }
    ++at_;
    return value();
  }
  const bool in_object = open_.back() == '{';
  if (peek() == (in_object ? '}' : ']')) {
    ++at_;
    open_.pop_back();
    first_ = false;
    return {in_object ? JsonKind::kObjectEnd : JsonKind::kArrayEnd};
  }
  if (!std::exchange(first_, false)) {
    if (peek() != ',') {
      refuse(in_object ? "a comma or } is needed" : "a comma or ] is needed");
    }
    ++at_;
  }
  if (!in_object) {
    return value();
  }
  skip_space();
  if (peek() != '"') {
    refuse("a key in double quotes is needed");
  }
  after_key_ = true;
  return {JsonKind::kKey, string()};
}

JsonEvent JsonReader::value() {
  skip_space();
  switch (peek()) {
    case '"': return {JsonKind::kString, string()};
    case '{': return open(JsonKind::kObject);
    case '[': return open(JsonKind::kArray);
    case 'n': return word("null", {JsonKind::kNull});
    case 't': return word("true", {JsonKind::kBoolean, {}, 1});
    case 'f': return word("false", {JsonKind::kBoolean, {}, 0});
    default: return number();
  }
}

JsonEvent JsonReader::open(JsonKind kind) {
  open_.push_back(text_[at_++]);
  first_ = true;
  return {kind};
}

JsonEvent JsonReader::word(std::string_view expected, JsonEvent event) {
  if (text_.substr(at_, expected.size()) != expected) {
    refuse("a value is needed");
  }
  at_ += expected.size();
  return event;
}

// Consumes digits; returns theirs modulo 2^64.
std::uint64_t JsonReader::digits() {
  std::uint64_t value = 0;
  std::size_t at = at_;
  for (; at < text_.size() && is_digit(text_[at]); ++at) {
    value = value * 10 + static_cast<std::uint64_t>(text_[at] - '0');
  }
  if (std::exchange(at_, at) == at) {
    refuse("a digit is needed");
  }
  return value;
}

JsonEvent JsonReader::number() {
  const std::size_t begin = at_;
  if (peek() != '-' && !is_digit(peek())) {
    refuse("a value is needed");
  }
  bool whole = peek() != '-';
  at_ += whole ? 0U : 1U;
  std::uint64_t value = 0;
  if (peek() == '0') {
    ++at_;  // no digit may follow it
  } else {
    value = digits();
  }
  if (peek() == '.') {
    whole = false;
    ++at_;
    digits();
  }
  if (peek() == 'e' || peek() == 'E') {
    whole = false;
    ++at_;
    at_ += peek() == '+' || peek() == '-' ? 1U : 0U;
    digits();
  }
  const std::string_view spelling = text_.substr(begin, at_ - begin);
  return whole && fits(spelling) ? JsonEvent{JsonKind::kWholeNumber, {}, value}
                                 : JsonEvent{JsonKind::kOtherNumber, spelling};
}

void JsonReader::skip_plain() {
  constexpr std::size_t kEight = 8;
  while (text_.size() - at_ >= kEight) {
    const std::size_t plain = plain_of_eight(text_.data() + at_);
    at_ += plain;
    if (plain < kEight) {
      return;
    }
  }
  while (at_ < text_.size() && kPlain[static_cast<unsigned char>(text_[at_])]) {
    ++at_;
  }
}

// Consumes a string, from its opening quote. Without escapes it is a view of the text.
std::string_view JsonReader::string() {
  const std::size_t begin = ++at_;
  unescaped_.clear();
  std::size_t copied = begin;  // everything before this is in unescaped_
  for (skip_plain(); peek() != '"'; skip_plain()) {
    if (peek() == '\\') {
      unescaped_.append(text_, copied, at_ - copied);
      escape();
      copied = at_;
    } else {
      multibyte_character();
    }
  }
  std::string_view value = text_.substr(copied, at_ - copied);
  if (copied != begin) {
    value = unescaped_.append(value);
  }
  ++at_;
  return value;
}

void JsonReader::multibyte_character() {
  if (static_cast<unsigned char>(peek()) < 0x20) {  // or the text ends
    refuse("a string contains a control character");
  }
  const std::size_t length = utf8_sequence(text_, at_);
  if (length == 0) {
    refuse("a string is not valid UTF-8");
  }
  at_ += length;
}

// Consumes an escape, from its backslash, or the two escapes of a surrogate pair.
void JsonReader::escape() {
  constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  ++at_;
  if (peek() == 'u') {
    unicode_escape();
    return;
  }
  const std::size_t which = kNames.find(peek());
  if (which == std::string_view::npos) {
    refuse("a string contains an escape that JSON does not have");
  }
  unescaped_.push_back(kMeanings[which]);
  ++at_;
}

void JsonReader::unicode_escape() {
  const char32_t code = code_unit();
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    ++at_;
    const char32_t low = code_unit();
    if (low >= 0xdc00 && low < 0xe000) {
      append_utf8(unescaped_, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
      return;
    }
  }
  if (code >= 0xd800 && code < 0xe000) {
    refuse("an escape is half of a surrogate pair");
  }
  append_utf8(unescaped_, code);
}

// Consumes a u and four hexadecimal digits.
char32_t JsonReader::code_unit() {
  char32_t code = 0;
  ++at_;
  for (int i = 0; i < 4; ++i, ++at_) {
    const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(peek());
    if (digit == std::string_view::npos) {
      refuse("four hexadecimal digits are needed after \\u");
    }
    code = code * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
  }
  return code;
}

}  // namespace regroup
