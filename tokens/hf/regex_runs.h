// Where a regular expression may run through a whole text, again and again.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup {

struct CountedPattern {
  std::string pattern;
  std::size_t loops = 0;  ///< that a match may begin with, at any place, without a callout
};

/// Puts callouts, "(?C)", into an expression of pcre2_pattern() so that the work between two of
/// them grows at most in proportion to the text, whatever the text is. PCRE2's own limits do not
/// count the characters of a run such as [^#]*. One run in each alternative needs no callout, nor
/// one after which nothing can fail: the expressions of published tokenizers get none.
CountedPattern with_callouts(std::string_view pattern);

}  // namespace regroup
