#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "tokens/hf/regex.h"
#include "tokens/hf/unicode.h"

namespace regroup {
namespace {

// White_Space, and its complement, as contents of a class. PCRE2's \s adds U+180E.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kOtherThanSpaces =
    R"(\x00-\x08\x0e-\x1f\x21-\x84\x86-\x9f\xa1-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// What Oniguruma's \w matches in addition to letters, marks, digits and joiners.
constexpr std::string_view kOtherWords =
    R"(\xb2\xb3\xb9\xbc-\xbe\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189})";

constexpr std::string_view kPunctuation = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ )";
// General categories, and scripts. PCRE2 takes a script's name for its extensions unless told.
constexpr std::array<std::string_view, 35> kCategories{
    "Cc", "Cf", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc",
    "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
constexpr std::array<std::string_view, 20> kScripts{
    "Arabic",   "Armenian", "Bengali",  "Cyrillic", "Devanagari", "Ethiopic", "Georgian",
    "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",     "Hebrew",   "Hiragana",
    "Katakana", "Khmer",    "Latin",    "Tamil",    "Telugu",     "Thai"};
// The letters of escapes, and the characters that they mean.
constexpr std::string_view kControlLetters = "nrtfvae0", kControls{"\n\r\t\f\v\a\x1b\0", 8};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where)
      : pattern_(pattern), where_(where), rest_(pattern) {}

  std::string translate() {
    while (!rest_.empty()) {
      item();
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw_bad_input("{}: the regular expression {} uses {}, which regroup does not support", where_,
                    printable(pattern_, 100), printable(what));
  }

  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) {
      return false;
    }
    rest_.remove_prefix(text.size());
    return true;
  }

  char take_byte(std::string_view what) {
    if (rest_.empty()) {
      refuse(what);
    }
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return byte;
  }

  void item() {
    if (take("(")) {
      group();
    } else if (take("[")) {
      result_ += take("^") ? "[^" : "[";
      class_items(0);
      result_ += ']';
    } else if (take("\\")) {
      escape();
    } else if (take("{")) {
      interval();
    } else if (take("^")) {
      result_ += "(?m:^)";  // Oniguruma's ^ and $ match at every line
    } else if (take("$")) {
      result_ += "(?m:$)";
    } else {
      result_ += take_byte("");
    }
  }

  void group() {
    constexpr std::array<std::string_view, 8> kOpenings{
        "?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"};
    if (result_.empty() &&
        take("?i)")) {  // elsewhere, both read the alternatives after it differently
      result_ = "(?i)";
      return;
    }
    for (const std::string_view opening : kOpenings) {
      if (take(opening)) {
        result_ += fmt::format("({}", opening);
        return;
      }
    }
    if (rest_.starts_with("?") || rest_.starts_with("*")) {
      refuse(fmt::format("({}", rest_.substr(0, 3)));
    }
    result_ += "(?:";  // nothing refers to what a group captures
  }

  // "{2,3}" after its brace. Other braces are literal.
  void interval() {
    const std::size_t end = rest_.find('}');
    const std::string_view bounds = rest_.substr(0, std::min(end, rest_.size()));
    const bool numbers = end != std::string_view::npos && !bounds.empty() && bounds != "," &&
                         bounds.find_first_not_of("0123456789,") == std::string_view::npos &&
                         std::count(bounds.begin(), bounds.end(), ',') <= 1;
    if (!numbers) {
      result_ += R"(\{)";
      return;
    }
    rest_.remove_prefix(end + 1);
    const bool fixed = bounds.find(',') == std::string_view::npos;
    if (rest_.starts_with('+') || (fixed && rest_.starts_with('?'))) {
      // Oniguruma repeats what it follows, PCRE2 makes it possessive or lazy.
      refuse("a quantifier after an interval");
    }
    result_ += fmt::format("{{{}{}}}", bounds.front() == ',' ? "0" : "", bounds);
  }

  void escape() {
    const char letter = take_byte("a backslash at its end");
    switch (letter) {
      case 's': result_ += fmt::format("[{}]", kSpaces); return;
      case 'S': result_ += fmt::format("[^{}]", kSpaces); return;
      case 'A': result_ += R"(\A)"; return;
      case 'z': result_ += R"(\z)"; return;
      default: break;
    }
    const std::string set = set_of(letter);
    result_ += set.empty() ? character(letter) : fmt::format("[{}{}]", negated_ ? "^" : "", set);
  }

  // An escape that means the same inside and outside of a class.
  std::string character(char letter) {
    if (letter == 'x' || letter == 'u') {
      return code_point(letter);
    }
    const bool octal = letter == '0' && !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '7';
    const std::size_t control = kControlLetters.find(letter);
    if (control != std::string_view::npos && !octal) {
      return fmt::format("\\x{{{:x}}}", kControls[control]);
    }
    if (kPunctuation.find(letter) == std::string_view::npos) {
      refuse(fmt::format("\\{}", letter));
    }
    return fmt::format("\\{}", letter);
  }

  // The contents of a class for \w, \d, \p{Name} and their negations; `negated_` says which.
  // Empty for other letters.
  std::string set_of(char letter) {
    negated_ = letter == 'W' || letter == 'D' || letter == 'P';
    if (letter == 'w' || letter == 'W') {
      return property("L") + property("M") + property("Nd") + property("Nl") + property("Pc") +
             std::string(kOtherWords);
    }
    if (letter == 'd' || letter == 'D') {
      return property("Nd");
    }
    if (letter != 'p' && letter != 'P') {
      return "";
    }
    const std::size_t end = rest_.find('}');
    if (!take("{") || end == std::string_view::npos) {
      refuse("\\p without a name in braces");
    }
    negated_ = take("^") != negated_;
    const std::string_view name = rest_.substr(0, rest_.find('}'));
    rest_.remove_prefix(name.size() + 1);
    return property(name);
  }

  std::string property(std::string_view name) const {
    const bool script = contains(kScripts, name);
    if (!script && !contains(kCategories, name)) {
      refuse(fmt::format("\\p{{{}}}", name));
    }
    return fmt::format("\\p{{{}{}}}", script ? "sc:" : "", name) + newer_characters(name);
  }

  // "\x41", "\x{1F600}" or "\u0041" after its letter.
  std::string code_point(char letter) {
    const bool braces = letter == 'x' && take("{");
    const std::size_t most = braces ? 6 : letter == 'x' ? 2 : 4;
    std::string digits;
    while (digits.size() < most && !rest_.empty() &&
           std::string_view("0123456789abcdefABCDEF").find(rest_.front()) !=
               std::string_view::npos) {
      digits += take_byte("");
    }
    const bool whole = braces ? !digits.empty() && take("}") : digits.size() == most;
    if (!whole) {
      refuse(fmt::format("\\{} without the digits of a character", letter));
    }
    return fmt::format("\\x{{{}}}", digits);
  }

  // The contents of a class up to its bracket. A class inside a class is its union with the rest.
  void class_items(int depth) {
    for (bool first = true;; first = false) {
      if (take("]")) {
        if (!first) {
          return;
        }
        result_ += R"(\])";
      } else if (rest_.starts_with("&&") || rest_.starts_with("[:") || rest_.starts_with("[^") ||
                 depth > 8) {
        refuse(fmt::format("{} in a character class", rest_.substr(0, 2)));
      } else if (take("[")) {
        class_items(depth + 1);
      } else if (take("\\")) {
        class_escape();
      } else {
        result_ += take_byte("a character class without end");
      }
    }
  }

  void class_escape() {
    const char letter = take_byte("a backslash at its end");
    if (letter == 's' || letter == 'S') {
      result_ += letter == 's' ? kSpaces : kOtherThanSpaces;
      return;
    }
    const std::string set = set_of(letter);
    if (!set.empty() && negated_) {
      refuse(fmt::format("\\{} in a character class", letter));
    }
    result_ += set.empty() ? character(letter) : set;
  }

  std::string_view pattern_, where_, rest_;
  std::string result_;
  bool negated_ = false;  // the last set
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).translate();
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char byte : text) {
    if (is_ascii(byte) && kPunctuation.find(byte) != std::string_view::npos) {
      pattern += '\\';
    }
    pattern += byte;
  }
  return pattern;
}

}  // namespace regroup
