// The normalisation rules in a SentencePiece model: a double-array trie of source strings, and the
// replacements. Format: https://github.com/s-yata/darts-clone
#pragma once

#include <string_view>

namespace regroup {

/// Validates a precompiled_charsmap, because SentencePiece follows its offsets unchecked. Throws
/// kBadInput unless every walk through the trie, for any text, stays inside the array and ends in a
/// replacement of bounded length. Error messages begin with `where` (the file name). An empty map
/// (no rules) is valid.
void check_charsmap(std::string_view charsmap, std::string_view where);

}  // namespace regroup
