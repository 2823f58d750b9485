// The patterns of tokenizer.json, by which text is split or replaced.
#pragma once

#include "tokens/hf/json_fields.h"
#include "tokens/hf/regex.h"

namespace regroup {

/// A text, {"String": "…"}, or a regular expression, {"Regex": "…"}. Thread-safe.
class Pattern {
 public:
  /// Throws kBadInput, as Regex does.
  explicit Pattern(const JsonFields& fields);

  /// Calls `found`(begin, end) for each match, from left to right.
  template <typename Found>
  void for_each_match(std::string_view text, Found&& found) const {
    regex_.for_each_match(text, found);
  }

 private:
  Regex regex_;
};

}  // namespace regroup
