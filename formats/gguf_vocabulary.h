// A vocabulary as the metadata of a GGUF file.
#pragma once

#include "formats/gguf_metadata.h"
#include "formats/vocabulary.h"

namespace regroup {

/// Sets the keys "tokenizer.*" of what `vocabulary` holds. llama.cpp's reader wants as many tokens
/// as the token embedding has rows.
void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary);

}  // namespace regroup
