#include "cli/shell/ascii_toml.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// The code point of a well-formed UTF-8 sequence.
char32_t code_point(std::string_view sequence) {
  constexpr std::array<unsigned char, 5> kLeadBits{0, 0x7f, 0x1f, 0x0f, 0x07};
  char32_t value = static_cast<unsigned char>(sequence.front()) & kLeadBits[sequence.size()];
  for (const char c : sequence.substr(1)) {
    value = value << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  return value;
}

// See ascii_toml().
class AsciiText {
 public:
  AsciiText(std::string_view text, std::string_view shown) : shown_(shown) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++number_;
      add_line(text.substr(begin, end - begin));
      ascii_ += '\n';
      begin = end + 1;
    }
  }

  const std::string& text() const { return ascii_; }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw_usage("{}:{}: {}", shown_, number_, why);
  }

  void add_line(std::string_view line) {
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    if (std::any_of(line.begin(), line.end(), is_control)) {
      refuse("a control character");
    }
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote == 0 && c == '#') {
        return;
      }
      if (is_past_ascii(c)) {
        i += add_escape(line, i, quote) - 1;
        continue;
      }
      ascii_ += c;
      if (quote == '"' && c == '\\' && i + 1 < line.size()) {
        ascii_ += escaped(line[++i]);
      } else if (quote != 0) {
        quote = c == quote ? '\0' : quote;
      } else if (c == '"' || c == '\'') {
        quote = opened_by(line.substr(i));
      }
    }
  }

  // Returns the length of the sequence.
  std::size_t add_escape(std::string_view line, std::size_t at, char quote) {
    const std::size_t length = utf8_sequence(line, at);
    if (length == 0) {
      refuse("bytes that are not UTF-8");
    }
    if (quote != '"') {
      refuse(quote == 0 ? "a non-ASCII character outside of quotes"
                        : "a non-ASCII character in single quotes; use double quotes");
    }
    ascii_ +=
        fmt::format("\\U{:08x}", static_cast<std::uint32_t>(code_point(line.substr(at, length))));
    return length;
  }

  char escaped(char c) const {
    if (is_past_ascii(c)) {
      refuse("a backslash before a non-ASCII character");
    }
    return c;
  }

  char opened_by(std::string_view rest) const {
    if (rest.starts_with(std::string(3, rest.front()))) {
      refuse("a multi-line string, which no option takes");
    }
    return rest.front();
  }

  static bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }
  static bool is_past_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

  std::string_view shown_;
  std::size_t number_ = 0;
  std::string ascii_;
};

}  // namespace

std::string ascii_toml(std::string_view text, std::string_view shown) {
  return AsciiText(text, shown).text();
}

}  // namespace regroup
