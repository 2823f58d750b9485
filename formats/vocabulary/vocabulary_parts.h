// The parts of a tokenizer.json that differ between the kinds of GGUF vocabularies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/vocabulary/vocabulary.h"

namespace regroup {

struct TokenizerParts {
  nlohmann::json model, normalizer = nullptr, pre_tokenizer = nullptr, decoder = nullptr;
};

/// Error messages begin with `where` (a file name). All throw kBadInput, see tokenizer_json_of().
TokenizerParts byte_level_parts(const Vocabulary& vocabulary, std::string_view where);
TokenizerParts scored_parts(const Vocabulary& vocabulary, std::string_view where);
TokenizerParts unigram_parts(const Vocabulary& vocabulary, std::string_view where);
/// Also gives the tokens of `vocabulary` the original's spelling.
TokenizerParts word_piece_parts(Vocabulary& vocabulary, std::string_view where);

// Shared by them:

inline constexpr std::string_view kSpaceOfPieces = "\u2581";

/// An object from token to id.
nlohmann::json token_ids_of(const std::vector<std::string>& tokens);

/// A normalizer or decoder that replaces matches of `pattern`.
nlohmann::json replacement_of(nlohmann::json pattern, std::string_view content);

/// The id of the unknown token. Throws kBadInput if there is none.
std::uint32_t unknown_id_of(const Vocabulary& vocabulary, std::string_view where);

/// Whether characters without a token become bytes: if there is a token for each byte. Throws
/// kBadInput if there are tokens for some of them.
bool has_byte_tokens(const Vocabulary& vocabulary, std::string_view where);

}  // namespace regroup
