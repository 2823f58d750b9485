// The normalisation rules inside a SentencePiece model: a double-array trie of what is replaced,
// and the replacements. https://github.com/s-yata/darts-clone describes the array.
#pragma once

#include <string_view>

namespace regroup {

/// Checks a precompiled_charsmap before SentencePiece sees it, which follows its offsets unchecked.
/// Throws kBadInput unless every walk through the trie, by any text, ends inside the array and in a
/// replacement of bounded length. `where` (the file's name) opens error messages. An empty map,
/// which has no rules, is allowed.
void check_charsmap(std::string_view charsmap, std::string_view where);

}  // namespace regroup
