// Regular expressions of tokenizers, with bounded work.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tokens/hf/json_fields.h"

struct pcre2_real_code_8;  // PCRE2's own name for its pcre2_code

namespace regroup {

/// A regular expression, compiled by PCRE2. Thread-safe.
class Regex {
 public:
  /// Compiles an expression in Oniguruma's syntax. Error messages begin with `where`. Throws
  /// kBadInput if it is malformed, longer than 16 KiB, or uses what pcre2_pattern() refuses.
  Regex(std::string_view pattern, std::string where);

  /// Calls `found`(begin, end) for each match in `text`, which must be UTF-8, from left to right.
  /// Empty matches right after a match are skipped. Throws kBadInput if a match takes too many
  /// steps, and as Work does.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& found) const;

 private:
  using Match = std::pair<std::size_t, std::size_t>;

  std::optional<Match> find(std::string_view text, std::size_t from) const;
  void check_result(int result) const;

  std::string where_, pattern_;
  std::size_t loops_ = 0;  // of which any place of a text may have to run through all
  std::unique_ptr<pcre2_real_code_8, void (*)(pcre2_real_code_8*)> code_;
};

// The patterns of tokenizer.json, by which text is split or replaced.

/// A text, {"String": "…"}, or a regular expression, {"Regex": "…"}. Throws kBadInput, as Regex
/// does.
std::shared_ptr<const Regex> read_pattern(const JsonFields& fields);

// Where a regular expression may run through a whole text, again and again.

struct CountedPattern {
  std::string pattern;
  std::size_t loops = 0;  ///< that a match may begin with, at any place, without a callout
};

/// Puts callouts, "(?C)", into an expression of pcre2_pattern() so that the work between two of
/// them grows at most in proportion to the text, whatever the text is. PCRE2's own limits do not
/// count the characters of a run such as [^#]*. One run in each alternative needs no callout, nor
/// one after which nothing can fail: the expressions of published tokenizers get none.
CountedPattern with_callouts(std::string_view pattern);

// Translates the regular expressions of tokenizer.json, which are Oniguruma's, for PCRE2.

/// Returns the expression of PCRE2 (with PCRE2_UTF and PCRE2_UCP) that matches what Oniguruma
/// matches with `pattern`. Both differ in what \s and \w contain, in nested character classes, in
/// possessive intervals and in anchors. Error messages begin with `where`. Throws kBadInput for
/// constructs outside the common part: back references, named groups, recursion, intersections.
std::string pcre2_pattern(std::string_view pattern, std::string_view where);

/// The expression that matches `text` literally.
std::string literal_pattern(std::string_view text);

}  // namespace regroup
