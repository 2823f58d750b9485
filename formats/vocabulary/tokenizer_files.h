// The tokenizer files of a directory, and what of a tokenizer.json is read here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/printable.h"
#include "formats/tensors/gguf_metadata.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

// The tokenizer of a GGUF file as the files of a Hugging Face directory.

/// tokenizer.json, tokenizer_config.json (special tokens, chat template) and generation_config.json
/// (the ids that end a generation). Throws kBadInput like vocabulary_in() and tokenizer_json_of().
std::vector<NamedText> tokenizer_files_of(const GgufMetadata& metadata);

// The tokenizer.json that gives the ids of a GGUF file's vocabulary.

/// A complete tokenizer.json: normalizer, pre-tokenizer, model, decoder, post-processor. Control
/// and unknown tokens become special added tokens, user-defined ones ordinary added tokens.
/// `vocabulary` is one of vocabulary_in(). Error messages begin with `where` (a file name). Throws
/// kBadInput for a vocabulary that determines no ids: an unknown pre-tokenization, scores that
/// leave the order of merges open, some but not all byte tokens, no unknown token where one is
/// needed.
nlohmann::json tokenizer_json_of(const Vocabulary& vocabulary, std::string_view where);

/// The token before a document and the token after it, as the file says; empty for none.
struct EdgeTokens {
  std::string first, last;
};
EdgeTokens edge_tokens_of(const Vocabulary& vocabulary);

}  // namespace regroup
