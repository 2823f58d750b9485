// Translates the regular expressions of tokenizer.json, which are Oniguruma's, for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace regroup {

/// Returns the expression of PCRE2 (with PCRE2_UTF and PCRE2_UCP) that matches what Oniguruma
/// matches with `pattern`. Both differ in what \s and \w contain, in nested character classes, in
/// possessive intervals and in anchors. Error messages begin with `where`. Throws kBadInput for
/// constructs outside the common part: back references, named groups, recursion, intersections.
std::string pcre2_pattern(std::string_view pattern, std::string_view where);

/// The expression that matches `text` literally.
std::string literal_pattern(std::string_view text);

}  // namespace regroup
