// The vocabulary of a GGUF file as a tokenizer, and merges by the scores of their results.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tensors/gguf_metadata.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

// The merges that a SentencePiece BPE makes: it has none in its file, only scores of pieces.

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

// A vocabulary as GGUF metadata.

/// Sets the "tokenizer.*" keys from `vocabulary`. llama.cpp requires as many tokens as the token
/// embedding has rows.
void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary);

/// The vocabulary of a file. Special ids and flags that are absent have llama.cpp's defaults,
/// except add_eos. Throws kBadInput for an unknown tokenizer.ggml.model, lists that are missing or
/// of different lengths, tokens that are not UTF-8, repeated or longer than 4 KiB, scores that are
/// not finite, unknown token types and ids that no token has.
Vocabulary vocabulary_in(const GgufMetadata& metadata);

/// Whether the file contains a tokenizer's vocabulary.
bool has_tokenizer(const GgufMetadata& metadata);

/// Special token ids by role: "bos", "eos", "unk", "sep", "pad", "mask", "cls". Throws kBadInput
/// for ids that are not integers.
std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata);

}  // namespace regroup
