// Google's SentencePiece library behind the Tokenizer interface, where it was there at build time.
#pragma once

#include <filesystem>
#include <memory>

#include "tokens/tokenizer.h"

namespace regroup {

/// Opens a tokenizer.model, with BOS and EOS as it has them. Throws kBadInput for a file that is
/// malformed, kUsage in a build without SentencePiece.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model);

}  // namespace regroup
