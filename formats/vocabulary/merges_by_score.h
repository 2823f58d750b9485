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

/// Whether the token repeats one character, such as SentencePiece's mark of a space.
bool repeats_one_character(std::string_view token);

/// All pairs of normal tokens that make a third, the best first: in descending order of the third's
/// score. Of several pairs that make the same token, those come first that are leftmost wherever
/// they overlap in a text; likewise of tokens with the same score that repeat one character. Throws
/// kBadInput naming `where` if other tokens have the same score and their pairs can overlap, which
/// leaves the order open, and for tokens so long that the search takes seconds.
std::vector<Merge> merges_by_score(const Vocabulary& vocabulary, std::string_view where);

}  // namespace regroup
