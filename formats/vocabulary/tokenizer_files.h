// The tokenizer of a GGUF file as the files of a Hugging Face directory, and back.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf/gguf_metadata.h"

namespace regroup {

struct TokenizerFile {
  std::string name;  ///< such as "tokenizer.json"
  std::string text;
};

/// tokenizer.json, tokenizer_config.json (special tokens, chat template) and generation_config.json
/// (the ids that end a generation). Throws kBadInput like vocabulary_in() and tokenizer_json_of().
std::vector<TokenizerFile> tokenizer_files_of(const GgufMetadata& metadata);

}  // namespace regroup
