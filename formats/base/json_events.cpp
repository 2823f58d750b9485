#include "formats/base/json_events.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

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

class JsonReader {
 public:
  JsonReader(std::string_view text, JsonEvents& events) : text_(text), events_(events) {}

  bool read() {
    if (!value()) {
      return false;
    }
    while (!open_.empty()) {
      if (!(open_.back() == '{' ? next_member() : next_element())) {
        return false;
      }
    }
    skip_space();
    return at_ == text_.size() || broken("nothing but white space may follow the value");
  }

 private:
  // The next byte; 0 at the end, where no JSON value has one.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool broken(std::string_view why) {
    events_.broken(at_, at_ < text_.size() ? why : "the text ends");
    return false;
  }

  // Reads the next element of an array, or its end.
  bool next_element() {
    skip_space();
    if (peek() == ']') {
      return close(&JsonEvents::end_array);
    }
    return separate("a comma or ] is needed") && value();
  }

  // Reads the next member of an object, or its end.
  bool next_member() {
    skip_space();
    if (peek() == '}') {
      return close(&JsonEvents::end_object);
    }
    if (!separate("a comma or } is needed")) {
      return false;
    }
    skip_space();
    if (peek() != '"') {
      return broken("a key in double quotes is needed");
    }
    std::string_view name;
    if (!string(name) || !events_.key(name)) {
      return false;
    }
    skip_space();
    if (peek() != ':') {
      return broken("a colon is needed");
    }
    ++at_;
    return value();
  }

  // Consumes the comma before every element or member except the first.
  bool separate(std::string_view why) {
    if (first_) {
      first_ = false;
      return true;
    }
    if (peek() != ',') {
      return broken(why);
    }
    ++at_;
    return true;
  }

  bool open(char bracket, bool (JsonEvents::*event)()) {
    ++at_;
    open_.push_back(bracket);
    first_ = true;
    return (events_.*event)();
  }

  bool close(bool (JsonEvents::*event)()) {
    ++at_;
    open_.pop_back();
    first_ = false;
    return (events_.*event)();
  }

  bool value() {
    skip_space();
    switch (peek()) {
      case '"': {
        std::string_view text;
        return string(text) && events_.string(text);
      }
      case '{': return open('{', &JsonEvents::start_object);
      case '[': return open('[', &JsonEvents::start_array);
      case 'n': return word("null") && events_.null();
      case 't': return word("true") && events_.boolean(true);
      case 'f': return word("false") && events_.boolean(false);
      default: return number();
    }
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) {
      return broken("a value is needed");
    }
    at_ += expected.size();
    return true;
  }

  // Consumes digits; `value` is theirs modulo 2^64.
  bool digits(std::uint64_t& value) {
    std::size_t at = at_;
    for (; at < text_.size() && is_digit(text_[at]); ++at) {
      value = value * 10 + static_cast<std::uint64_t>(text_[at] - '0');
    }
    return std::exchange(at_, at) < at || broken("a digit is needed");
  }

  bool digits() {
    std::uint64_t value = 0;
    return digits(value);
  }

  bool number() {
    const std::size_t begin = at_;
    if (peek() != '-' && !is_digit(peek())) {
      return broken("a value is needed");
    }
    at_ += peek() == '-' ? 1U : 0U;
    std::uint64_t value = 0;
    if (peek() == '0') {
      ++at_;  // no digit may follow it
    } else if (!digits(value)) {
      return false;
    }
    bool whole = text_[begin] != '-';
    if (peek() == '.') {
      whole = false;
      ++at_;
      if (!digits()) {
        return false;
      }
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      at_ += peek() == '+' || peek() == '-' ? 1U : 0U;
      if (!digits()) {
        return false;
      }
    }
    const std::string_view spelling = text_.substr(begin, at_ - begin);
    return whole && fits(spelling) ? events_.whole_number(value) : events_.other_number(spelling);
  }

  // Whether these digits are a number below 2^64.
  static bool fits(std::string_view digits) {
    constexpr std::size_t kCertain = 19;  // as many always are
    std::uint64_t value = 0;
    return digits.size() <= kCertain ||
           std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
  }

  void skip_plain() {
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
  bool string(std::string_view& value) {
    const std::size_t begin = ++at_;
    unescaped_.clear();
    std::size_t copied = begin;  // everything before this is in unescaped_
    for (skip_plain(); peek() != '"'; skip_plain()) {
      if (peek() != '\\') {
        if (!multibyte_character()) {
          return false;
        }
        continue;
      }
      unescaped_.append(text_, copied, at_ - copied);
      if (!escape()) {
        return false;
      }
      copied = at_;
    }
    value = text_.substr(copied, at_ - copied);
    if (copied != begin) {
      unescaped_.append(value);
      value = unescaped_;
    }
    ++at_;
    return true;
  }

  bool multibyte_character() {
    if (static_cast<unsigned char>(peek()) < 0x20) {  // or the text ends
      return broken("a string contains a control character");
    }
    const std::size_t length = utf8_sequence(text_, at_);
    if (length == 0) {
      return broken("a string is not valid UTF-8");
    }
    at_ += length;
    return true;
  }

  // Consumes an escape, from its backslash, or the two escapes of a surrogate pair.
  bool escape() {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (peek() == 'u') {
      return unicode_escape();
    }
    const std::size_t which = kNames.find(peek());
    if (which == std::string_view::npos) {
      return broken("a string contains an escape that JSON does not have");
    }
    unescaped_.push_back(kMeanings[which]);
    ++at_;
    return true;
  }

  bool unicode_escape() {
    char32_t code = 0;
    if (!code_unit(code)) {
      return false;
    }
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      ++at_;
      char32_t low = 0;
      if (!code_unit(low)) {
        return false;
      }
      if (low >= 0xdc00 && low < 0xe000) {
        append_utf8(unescaped_, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
        return true;
      }
    }
    if (code >= 0xd800 && code < 0xe000) {
      return broken("an escape is half of a surrogate pair");
    }
    append_utf8(unescaped_, code);
    return true;
  }

  // Consumes a u and four hexadecimal digits.
  bool code_unit(char32_t& code) {
    ++at_;
    for (int i = 0; i < 4; ++i, ++at_) {
      const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(peek());
      if (digit == std::string_view::npos) {
        return broken("four hexadecimal digits are needed after \\u");
      }
      code = code * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    return true;
  }

  std::string_view text_;
  JsonEvents& events_;
  std::size_t at_ = 0;
  std::string open_;       // the brackets and braces around the current position
  bool first_ = false;     // whether the innermost of them is still empty
  std::string unescaped_;  // the last string that had escapes
};

}  // namespace

bool read_json_events(std::string_view text, JsonEvents& events) {
  return JsonReader(text, events).read();
}

}  // namespace regroup
