// The tokenizer inside a GGUF file.
#pragma once

#include <filesystem>
#include <memory>

#include "formats/tensors/gguf_metadata.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// Opens the tokenizer of a GGUF file: byte-level BPE, SentencePiece's BPE, Unigram or WordPiece.
/// BOS and EOS are the file's: EOS is added if there is one, BOS if the file or the kind of
/// tokenizer says so. Throws kBadInput for malformed and unknown vocabularies, kUsage in a build
/// that does not read tokenizer.json.
std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::filesystem::path& file);

/// The same from the metadata.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace regroup
