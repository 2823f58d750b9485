// A vocabulary as the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "formats/gguf/gguf_metadata.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

/// Sets the keys "tokenizer.*" of what `vocabulary` holds. llama.cpp's reader wants as many tokens
/// as the token embedding has rows.
void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary);

/// Whether the file holds the vocabulary of a tokenizer.
bool has_tokenizer(const GgufMetadata& metadata);

/// The ids of the tokens that have a role, by that: "bos", "eos", "unk", "sep", "pad", "mask".
/// Throws kBadInput for what is no whole number.
std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata);

}  // namespace regroup
