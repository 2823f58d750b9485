// A vocabulary as GGUF metadata.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "formats/gguf/gguf_metadata.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

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
