// The merges that a SentencePiece BPE makes: it has none in its file, only scores of pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/vocabulary/vocabulary.h"

namespace regroup {

/// Two neighbouring tokens, views of the vocabulary's texts.
using Merge = std::pair<std::string_view, std::string_view>;

/// All pairs of normal tokens that make a third, the best first: in descending order of the third's
/// score. Of several pairs that make the same token, those come first that are leftmost wherever
/// they overlap in a text. Throws kBadInput naming `where` if two tokens that can be made have the
/// same score, which leaves the order open, and for tokens so long that the search takes seconds.
std::vector<Merge> merges_by_score(const Vocabulary& vocabulary, std::string_view where);

}  // namespace regroup
