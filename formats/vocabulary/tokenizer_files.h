// The tokenizer of a GGUF file as the files of a Hugging Face directory.
#pragma once

#include <vector>

#include "formats/base/named_text.h"
#include "formats/gguf/gguf_metadata.h"

namespace regroup {

/// tokenizer.json, tokenizer_config.json (special tokens, chat template) and generation_config.json
/// (the ids that end a generation). Throws kBadInput like vocabulary_in() and tokenizer_json_of().
std::vector<NamedText> tokenizer_files_of(const GgufMetadata& metadata);

}  // namespace regroup
