// Reads untrusted JSON event by event: one pass over the bytes, no document in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace regroup {

/// What a text of JSON is made of.
enum class JsonKind {
  kNull,
  kBoolean,
  kWholeNumber,  ///< an integer literal from 0 to 2^64-1
  kOtherNumber,
  kString,
  kKey,
  kObject,  ///< begins here
  kObjectEnd,
  kArray,  ///< begins here
  kArrayEnd,
  kEnd,  ///< of the text
};

struct JsonEvent {
  JsonKind kind;
  /// A string, a key, or another number as spelled in the text. Valid until the next event.
  std::string_view text = {};
  std::uint64_t number = 0;  ///< a whole number; 0 or 1 for a boolean
};

/// Reads one document strictly (RFC 8259): valid UTF-8, no byte order mark, only white space around
/// the value. Nesting takes one byte per level and no stack; callers must enforce depth limits.
class JsonReader {
 public:
  /// `what` begins the messages of errors. It ends with "is", or with a colon.
  JsonReader(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

  /// The next event; kEnd after the value. Throws kBadInput "<what> not valid JSON at byte <n>:
  /// <why>", counted from 0.
  JsonEvent next();

 private:
  [[noreturn]] void refuse(std::string_view why) const;
  char peek() const;
  void skip_space();
  JsonEvent value();
  JsonEvent open(JsonKind kind);
  JsonEvent word(std::string_view expected, JsonEvent event);
  JsonEvent number();
  std::uint64_t digits();
  void skip_plain();
  std::string_view string();
  void multibyte_character();
  void escape();
  void unicode_escape();
  char32_t code_unit();

  std::string_view text_;
  std::string what_;
  std::size_t at_ = 0;
  std::string open_;        // the brackets and braces around the current position
  bool begun_ = false;      // the value of the document
  bool first_ = false;      // whether the innermost of the brackets is still empty
  bool after_key_ = false;  // the key's value is next
  std::string unescaped_;   // the last string that had escapes
};

}  // namespace regroup
