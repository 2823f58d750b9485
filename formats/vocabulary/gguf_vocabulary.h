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

/// Whether the file contains a tokenizer's vocabulary.
bool has_tokenizer(const GgufMetadata& metadata);

/// Special token ids by role: "bos", "eos", "unk", "sep", "pad", "mask". Throws kBadInput for ids
/// that are not integers.
std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata);

}  // namespace regroup
